// Package dashboard serves pages about a throttle for the people on call: how its limits are
// used, which jobs wait for what and until when, why a job does not run, who changed what, and
// whether all processes have the same configuration. The pages show what the command
// asynq-throttle prints.
//
//	pages, err := dashboard.New("smtp", client, nil)
//	mux.Handle("/throttle/", pages)
//
// The package needs no configuration: it attaches to a throttle by what the throttle's processes
// have published, and decides nothing. A Handler serves all its files itself, at any prefix of a
// mux that ends in a slash; the pages load nothing from other hosts.
//
// # Cost
//
// Server-sent events keep open pages up to date. All pages share one reading of Redis a second,
// and nothing is read while no page is open. A reading covers a bounded number of scope keys:
// those under which the most jobs wait, those open in a browser, and those shown before. The
// whole line is read so seldom that this takes less than a third of a percent of the time. A
// request for the page of another scope key or of a job adds reads of its own, one request after
// the other.
//
// # Who may do what
//
// The pages show names of tenants to every client that reaches them, so mount them behind the
// authentication of your own program, or let Options.Authorize refuse requests. The pages change
// nothing unless Options.AllowChanges is set. A change must come from the pages' own origin, and
// Options.Logger receives each change with its client.
package dashboard
