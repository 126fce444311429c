package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The scopes that mails are counted over, besides throttle.Global.
const (
	scopeTenant = campaign.ScopeTenant // "tenant"
	scopeDomain = campaign.ScopeDomain // "domain", of the recipients
)

// scopeConnections is the scope that limits how many mails are being sent to a domain at
// once. A scope counts one kind of unit: the other limits of a domain count recipients.
const scopeConnections = campaign.ScopeConnections

// margin is how long a mail may take from its grant to the mail server. The throttle counts a
// mail when it is granted; the server counts it when it arrives, a varying time later.
const margin = 100 * time.Millisecond

// defaultLimits shape the bundled campaign over about half a minute. The global
// limit is full from the first second to the last; the other limits hold a tenant
// or a domain now and then. In Go, they would be
//
//	[]throttle.Scope{
//		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(40), throttle.Per(900, 20*time.Second)},
//			Margin: margin},
//		{Name: "tenant", Limits: []throttle.Limit{throttle.PerSecond(30), throttle.Per(250, 10*time.Second)},
//			Margin: margin},
//		{Name: "domain", Limits: []throttle.Limit{throttle.PerSecond(25), throttle.Per(120, 10*time.Second)},
//			Margin: margin},
//	}
const defaultLimits = "global=40/1s,900/20s;tenant=30/1s,250/10s;domain=25/1s,120/10s"

// aWarmup shows what a ramp looks like.
const aWarmup = `"ramp 50/day x2 max 400 from 2026-12-01 @Europe/Paris"`

// defaultRaise lets the new sender of the bundled campaign begin slowly, in seconds.
const defaultRaise = "vandelay=0s 2/1s; 10s 4/1s; 15s 8/1s; 20s -"

// addHours adds the opening hours in which mails may start to the global scope; none if the text is empty. In Go, they
// would be throttle.OpenHours("Mon-Fri 09:00-17:00 @Europe/Paris").
func (o *options) addHours(text string) error {
	if text == "" {
		return nil
	}
	return o.add(throttle.Global, "open "+text)
}

// addPerDay adds a daily quota, such as 400@Europe/Paris, to the tenants' scope; none if the text is empty. In Go, it
// would be throttle.PerCalendarDay(400, "Europe/Paris").
func (o *options) addPerDay(text string) error {
	if text == "" {
		return nil
	}
	units, zone, _ := strings.Cut(text, "@")
	if strings.Contains(units, "/") || zone == "" {
		return fmt.Errorf("%q: want recipients and a time zone, such as 400@Europe/Paris", text)
	}
	return o.add(scopeTenant, units+"/"+throttle.Day+"@"+zone)
}

// addWarmup adds a ramp to the global scope, since the address that sends all mails is new; none if the text is
// empty. In Go, it would be throttle.Ramp("50/day x2 max 400 from 2026-12-01 @Europe/Paris").
func (o *options) addWarmup(text string) error {
	if text == "" {
		return nil
	}
	if limit, err := throttle.ParseLimit(text); err == nil && limit.Ramp == "" {
		return fmt.Errorf("%s does not grow: want a ramp, such as %s", limit, aWarmup)
	}
	return o.add(throttle.Global, text)
}

func (o *options) add(scope, text string) error {
	limit, err := throttle.ParseLimit(text)
	if err != nil {
		return err
	}
	if limit.Units == 0 {
		return fmt.Errorf("under %s nothing ever starts", limit)
	}
	for i := range o.scopes {
		if o.scopes[i].Name == scope {
			o.scopes[i].Limits = append(o.scopes[i].Limits, limit)
		}
	}
	return nil
}

// beginRaise takes the step of the raise that is due before the first mail.
func (e *emailer) beginRaise(ctx context.Context) error {
	if !e.raise.Among(e.campaign) {
		e.raise = campaign.Raise{}
	}
	if len(e.raise.Steps) == 0 || e.raise.Steps[0].After > 0 {
		return nil
	}
	return e.take(ctx, e.raise.Steps[0])
}

// keepRaising takes the other steps, each at its time.
func (e *emailer) keepRaising(ctx context.Context, began time.Time) {
	for _, s := range e.raise.Steps {
		if s.After == 0 {
			continue
		}
		if !rig.SleepUntil(ctx, began.Add(s.After)) {
			return
		}
		if err := e.take(ctx, s); err != nil {
			if ctx.Err() == nil {
				e.Progress.Say("%v: its limit stays as it is", err)
			}
			return
		}
	}
}

// take gives the tenant the limits of a step, in all processes at once.
func (e *emailer) take(ctx context.Context, s campaign.Step) error {
	at, tenant := e.Now(), e.raise.Tenant
	var limits []throttle.Limit
	var err error
	if s.Last() {
		err = inspect.New(e.throttle).ResetLimits(ctx, scopeTenant, tenant)
	} else {
		limits = append([]throttle.Limit{s.Limit}, e.lasting()...) // limits that are set replace all limits of the tenant
		err = inspect.New(e.throttle).SetLimits(ctx, scopeTenant, tenant, limits)
	}
	if err != nil {
		return fmt.Errorf("raise of %s: %w", tenant, err)
	}
	e.ledger.LimitChanged(at, scopeTenant, tenant, limits)
	e.Progress.Say("%s may start %s", tenant, s)
	return nil
}

// lasting returns the quotas and hours of tenants, which hold during the raise too.
func (e *emailer) lasting() []throttle.Limit {
	return slices.DeleteFunc(slices.Clone(rig.LimitsOf(e.scopes, scopeTenant)),
		func(l throttle.Limit) bool { return l.Zone() == "" })
}

// endRaise resets the limits of the raise, which would outlive this run in Redis.
func (e *emailer) endRaise(ctx context.Context) {
	if len(e.raise.Steps) == 0 {
		return
	}
	if err := inspect.New(e.throttle).ResetLimits(ctx, scopeTenant, e.raise.Tenant); err != nil {
		e.Progress.Say("raise of %s: %v", e.raise.Tenant, err)
	}
}
