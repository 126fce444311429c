package dashboard

import (
	"context"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// changesPage lists the changes, and who made them.
type changesPage struct {
	Holding, All []changeRow
	Age          time.Duration // since the settings in force were read; 0 if just now
}

// changeRow is one change, or one setting in force.
type changeRow struct {
	instantNow
	Scope, Key string
	One        bool // the row is about one scope key
	What, By   string
	At         time.Time
	Why        string
	From, To   settingText
	Text       string    // the setting in force
	Until      time.Time // when the setting ends by itself
}

// settingText is limits or a mode as text, or, in At, until when a key is paused.
type settingText struct {
	Text string
	At   time.Time
}

func changesOf(b *board) changesPage {
	var p changesPage
	for _, c := range b.process.changes {
		p.All = append(p.All, b.changeRow(c))
	}
	p.Holding = b.setRows(b.process.sets.At(b.now))
	p.Age = b.setAge()
	return p
}

func (b *board) changeRow(c inspect.Change) changeRow {
	return changeRow{
		instantNow: instantNow{b.now}, Scope: c.Scope, Key: c.Key, One: isOne(c.Scope, c.Key), What: c.What,
		By: c.By, Why: c.Why, At: c.At,
		From: settingOf(c.What, c.Before), To: settingOf(c.What, c.After), Until: c.Until,
	}
}

// isOne reports whether scope and key name one scope key, not all keys of a scope.
func isOne(scope, key string) bool { return key != "" || scope == throttle.Global }

func settingOf(what, text string) settingText {
	if end, err := time.Parse(time.RFC3339, text); what == "pause" && err == nil {
		return settingText{At: end}
	}
	return settingText{Text: text}
}

// search reads the settings of all scope keys, for one request at a time.
func (h *Handler) search(ctx context.Context, b *board, f *frame) {
	const enough = 30 * time.Second // the search scans all of Redis' keys
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	select {
	case h.searching <- struct{}{}:
		defer h.searching.leave()
	default:
		f.Problem = "Somebody else looks through all scope keys: load the page again in some seconds."
		return
	}
	set, err := b.throttle.Settings(ctx)
	if err != nil {
		f.Problem = problem(err)
		return
	}
	f.Set = b.setRows(set)
}

// setRows returns a row for each setting.
func (b *board) setRows(set []inspect.Setting) []changeRow {
	var rows []changeRow
	for _, s := range set {
		row := changeRow{
			instantNow: instantNow{b.now}, Scope: s.Scope, Key: s.Key, One: isOne(s.Scope, s.Key),
			What: s.What, Until: s.Until, By: s.By, Why: s.Why, At: s.At,
		}
		switch s.What {
		case "pause":
			row.Text = "paused"
		case "limits":
			row.Text = view.LimitTexts(s.Limits)
			if own := b.keys[scopeKey{s.Scope, s.Key}]; own != nil && own.err == nil && own.usage.SetFor == "key" {
				row.Text = limitsInForce(own.usage) // as the row of the scope key shows its limits, which were read later
			}
		case "mode":
			row.Text = "mode " + s.Mode
		}
		rows = append(rows, row)
	}
	return rows
}
