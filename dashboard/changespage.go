package dashboard

import (
	"context"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// changesPage is what was changed by whom.
type changesPage struct{ Holding, All []changeRow }

// changeRow is one change, or something that is set.
type changeRow struct {
	instantNow
	Scope, Key string
	One        bool // it is of one scope key
	What, By   string
	At         time.Time
	From, To   settingText
	Text, Mode string // of what is set
	Paused     time.Time
}

// settingText is limits or a mode, or until when something is paused.
type settingText struct {
	Text string
	At   time.Time
}

func changesOf(b *board) changesPage {
	var p changesPage
	for _, c := range b.process.changes {
		p.All = append(p.All, b.changeRow(c))
	}
	for _, c := range inForce(b.process.changes, b.now) {
		p.Holding = append(p.Holding, b.changeRow(c))
	}
	return p
}

func (b *board) changeRow(c throttle.Change) changeRow {
	return changeRow{
		instantNow: instantNow{b.now}, Scope: c.Scope, Key: c.Key, One: isOne(c.Scope, c.Key), What: c.What, By: c.By, At: c.At,
		From: settingOf(c.What, c.Before), To: settingOf(c.What, c.After),
	}
}

// isOne tells a scope key from all keys of a scope.
func isOne(scope, key string) bool { return key != "" || scope == throttle.Global }

func settingOf(what, text string) settingText {
	if end, err := time.Parse(time.RFC3339, text); what == "pause" && err == nil {
		return settingText{At: end}
	}
	return settingText{Text: text}
}

// search looks through all scope keys for what is set.
func (h *Handler) search(ctx context.Context, b *board, f *frame) {
	const enough = 30 * time.Second // it looks at all keys that Redis has
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	h.searching.Lock() // one at a time
	defer h.searching.Unlock()
	set, err := view.Settings(ctx, b.throttle)
	if err != nil {
		f.Problem = problem(err)
		return
	}
	for _, s := range set {
		f.Set = append(f.Set, changeRow{
			instantNow: instantNow{b.now}, Scope: s.Scope, Key: s.Key, One: isOne(s.Scope, s.Key),
			Text: limitsText(s.Limits), Mode: s.Mode, Paused: s.Paused, By: s.By,
		})
	}
}
