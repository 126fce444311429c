// Package dashboard serves pages about a throttle, for whoever is on call: how its limits
// are used, who waits for what and until when, why a job does not run, what was changed by
// whom, whether its processes are configured alike. It shows what the command
// asynq-throttle prints.
//
//	pages, err := dashboard.New("smtp", client, nil)
//	mux.Handle("/throttle/", pages)
//
// It needs no configuration: it attaches to a throttle by what the throttle's processes
// have published, and decides nothing. It serves all that it shows by itself, at any prefix
// of a mux that ends in a slash; no other host is asked.
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
// The pages show names of tenants to whoever reaches them, so mount them behind the
// authentication of your own program, or have Options.Authorize refuse requests. They change
// nothing unless Options.AllowChanges is set. A change must come from the pages' own origin,
// and each is logged with who asked for it.
package dashboard
