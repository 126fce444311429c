// Package browsertest has the tests of the dashboard in a real browser. It is a module of
// its own, so that what drives the browser comes to nobody.
package browsertest
