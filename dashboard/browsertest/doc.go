// Package browsertest has the tests of the dashboard in a real browser. It is a module of
// its own, so that no user of the library gets the packages that drive the browser.
package browsertest
