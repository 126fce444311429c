package main

import (
	"fmt"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// maxConnections bounds -connections.
const maxConnections = 1000

// options are the flags of this example; the rig has those of all examples.
type options struct {
	campaignFile string           // CSV; empty for the bundled one
	scopes       []throttle.Scope // the scopes of -limits
	connections  int64            // the most connections to one domain at once
	plan         bool             // mails are planned when they are enqueued
	raise        campaign.Raise
	smtp         string // host:port; empty for the server inside the process
	metrics      string // host:port to serve metrics at; empty for none
}

// parseOptions reads the command line.
func parseOptions(p *rig.Program, args []string) (options, error) {
	var o options
	flags := p.Flags("sends a campaign of mails through asynq, shaped under quotas.", "mails",
		"sends the campaign anew (default: after the campaign's content)")
	flags.StringVar(&o.campaignFile, "campaign", "", "CSV `file` with the mails (default: the bundled campaign)")
	limits := flags.String("limits", defaultLimits, "limits of each scope, `scope=units/window,…;…`")
	hours := flags.String("hours", "",
		"opening `hours` of all mails, such as \"Mon-Fri 09:00-17:00 @Europe/Paris\" (default: always open)")
	perDay := flags.String("per-day", "",
		"recipients of each tenant in a day of a time `zone`, such as 400@Europe/Paris (default: any number)")
	flags.Int64Var(&o.connections, "connections", 2, "how many connections to one domain at once")
	flags.BoolVar(&o.plan, "plan", true,
		"plan mails when they are enqueued; if false, each is put back when a worker takes it")
	warmup := flags.String("warmup", "",
		"`ramp` of the recipients of all mails in a day, for a new address to send from, such as "+aWarmup+
			" (default: none)")
	raise := flags.String("raise", defaultRaise,
		"limit of a tenant, raised while it runs: `tenant=time units/window;…`, where - stands for the configured limits; "+
			"ignored if the campaign has no mails of the tenant")
	flags.StringVar(&o.smtp, "smtp", "", "`host:port` of an SMTP server (default: one inside the process)")
	flags.StringVar(&o.metrics, "metrics", "",
		"serve metrics for Prometheus at `host:port`, such as 127.0.0.1:9464, while it runs")
	if err := p.Parse(flags, args); err != nil {
		return o, err
	}
	if o.connections < 1 || o.connections > maxConnections {
		return o, fmt.Errorf("-connections %d is not between 1 and %d", o.connections, maxConnections)
	}
	var err error
	if o.scopes, err = rig.ParseLimits(*limits, throttle.Global, scopeTenant, scopeDomain); err != nil {
		return o, fmt.Errorf("-limits: %w", err)
	}
	o.scopes = rig.WithMargin(o.scopes, margin)
	if err := o.addHours(*hours); err != nil {
		return o, fmt.Errorf("-hours: %w", err)
	}
	if err := o.addPerDay(*perDay); err != nil {
		return o, fmt.Errorf("-per-day: %w", err)
	}
	if err := o.addWarmup(*warmup); err != nil {
		return o, fmt.Errorf("-warmup: %w", err)
	}
	if o.raise, err = campaign.ParseRaise(*raise); err != nil {
		return o, fmt.Errorf("-raise: %w", err)
	}
	return o, nil
}
