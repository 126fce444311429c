// Package metrics reports to Prometheus what throttles do. A Collector is the throttle.Observer of
// any number of throttles, and the caller registers it:
//
//	collector, err := metrics.New(nil)
//	th, err := throttle.New("smtp", client, scopes, &throttle.Options{Observer: collector})
//	collector.Watch(inspect.New(th)) // for what is used and waits, which is asked for at each scrape
//	registry.MustRegister(collector)
//
// No label has a value that a tenant or another user chose: the program chooses the names of
// throttles, scopes and windows. Options.Keys names the keys that are reported one by one.
//
// docs/operations.md says what each metric means and which alert to set.
package metrics
