package dashboard

import (
	"context"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// question is what a page asks before a user changes limits or pauses all jobs.
type question struct {
	Do, Button    string
	Before, After string
	Lifted        string // limits in force that the change would lift
	Undo          string
	Lasts         string // for how long or until when the change lasts, as the answering form has it
}

// sure is the form's field that answers a question. Its value is the question's Before.
const sure = "sure"

// ask returns the question of a form; nil if the form needs none or answers it. An invalid form has
// no question: do returns its error.
func (h *Handler) ask(ctx context.Context, th *inspect.Inspector, key scopeKey, scopes []throttle.Scope,
	f form) (*question, error) {
	var q *question
	var err error
	switch f.Get("do") {
	case "limits", "reset":
		q, err = askOfLimits(ctx, th, key, scopes, f)
	case "pause":
		q, err = askOfPause(ctx, th, key, f)
	}
	if err != nil || q == nil || f.Get(sure) == q.Before {
		return nil, err
	}
	return q, nil
}

func askOfLimits(ctx context.Context, th *inspect.Inspector, key scopeKey, scopes []throttle.Scope,
	f form) (*question, error) {
	now, after, err := limitsOf(ctx, th, key, scopes)
	if err != nil {
		return nil, err
	}
	q := &question{
		Do: f.Get("do"), Button: "Reset", Before: view.LimitTexts(now.inForce) + now.origin(),
		After: view.LimitTexts(after.inForce) + after.origin(), Undo: "Reset",
	}
	if q.Do == "limits" {
		limits, of, err := limitsEntered(th, key, f)
		if err != nil {
			return nil, nil //nolint:nilerr // do says what is wrong
		}
		q.Button, q.Lasts, after.inForce = "Set", of.entered, limits
		q.After = view.WithReason(view.LimitTexts(limits)+of.words, f.Get("why"))
	}
	if now.set == "key" {
		q.Undo = view.WithReason("Set "+view.LimitTexts(now.inForce)+untilText(now.until, time.RFC3339Nano), now.why)
	}
	q.Lifted = view.LimitTexts(view.Lifted(now.inForce, after.inForce))
	return q, nil
}

// limitsNow is the limits of a scope key and their origin.
type limitsNow struct {
	inForce []throttle.Limit
	set     string    // whether they were set for the key or for the scope; empty: they are configured
	until   time.Time // when the setting ends by itself
	why     string
}

// untilText is the last words of a sentence: until when a setting lasts. It is empty if the setting has no end.
func untilText(until time.Time, layout string) string {
	if until.IsZero() {
		return ""
	}
	return " until " + until.UTC().Format(layout)
}

// origin says whether the limits are configured or set, in the last words of a sentence.
func (l limitsNow) origin() string {
	if l.set == "" {
		return ", as configured"
	}
	return view.WithReason(", set at run time for the "+l.set+untilText(l.until, time.RFC3339), l.why)
}

// limitsOf returns the limits in force for a scope key, and those without the key's own limits.
func limitsOf(ctx context.Context, th *inspect.Inspector, key scopeKey,
	scopes []throttle.Scope) (now, without limitsNow, err error) {
	if i := slices.IndexFunc(scopes, func(s throttle.Scope) bool { return s.Name == key.Scope }); i >= 0 {
		without.inForce = scopes[i].Limits
	}
	if key.Scope != throttle.Global {
		set, err := th.SettingsOf(ctx, key.Scope, "")
		if err != nil {
			return now, without, err
		}
		if of := view.Find(set, "limits"); of.Limits != nil {
			without = limitsNow{of.Limits, "scope", of.Until, of.Why}
		}
	}
	set, err := th.SettingsOf(ctx, key.Scope, key.Key)
	own := view.Find(set, "limits")
	if err != nil || own.Limits == nil {
		return without, without, err
	}
	return limitsNow{own.Limits, "key", own.Until, own.Why}, without, nil
}

// askOfPause returns the question before a pause of all jobs. A pause of one key needs no question.
func askOfPause(ctx context.Context, th *inspect.Inspector, key scopeKey, f form) (*question, error) {
	of, err := termOf(f, "for")
	if err != nil || of.end.IsZero() || key.Scope != throttle.Global {
		return nil, nil //nolint:nilerr // do says what is wrong
	}
	set, err := th.SettingsOf(ctx, key.Scope, key.Key)
	if err != nil {
		return nil, err
	}
	q := &question{Do: "pause", Button: "Pause all", Before: "not paused",
		After: view.WithReason("no job of any key starts"+of.words, f.Get("why")), Undo: "Resume", Lasts: of.entered}
	if pause := view.Find(set, "pause"); !pause.Until.IsZero() {
		q.Before = view.WithReason("paused"+untilText(pause.Until, time.RFC3339), pause.Why)
		q.Undo = view.WithReason("Resume, then Pause"+untilText(pause.Until, time.RFC3339Nano), pause.Why)
	}
	return q, nil
}
