// Package metrics tells Prometheus what throttles do. A Collector is the
// throttle.Observer of any number of them, and is registered by the caller:
//
//	collector, err := metrics.New(nil)
//	th, err := throttle.New("smtp", client, scopes, &throttle.Options{Observer: collector})
//	collector.Watch(th) // for what is used and waits, which is asked for at each scrape
//	registry.MustRegister(collector)
//
// No metric has a label of a tenant's or another user's making: names of throttles,
// scopes and windows are those of the program. Options.Keys names the keys that
// are to be seen one by one.
//
// docs/operations.md says what each metric means and which alert to set.
package metrics
