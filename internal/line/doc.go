// Package line is the throttle's algorithm in plain Go: placing jobs in the windows of
// their scope keys, and the line of those that find no room. The scripts in package lua
// do the same in Redis; the property tests hold them against this package step by step,
// and a forecast plays the line through with it.
//
// All instants and durations are integers in microseconds. A Line is not safe for use by
// several goroutines, as Redis runs one script at a time.
//
// # Ledgers
//
// A scope key has a ledger for each of its windows. Time is divided into sub-windows of
// the ledger's precision; a charge counts in its whole sub-window. Two charges in the
// sub-windows a <= b count together if b - a < n, where n is the window in microseconds
// for the precision 1 and ceil(window/precision) + 1 for a coarser one. What has started
// is spent, what is promised is booked.
//
// Time in a ledger never goes back. Where the clock steps back by up to 30 s the ledger
// stands still until the clock has caught up; after a larger step it goes on from where
// it stood. Either way what has started counts for too long, never for too short.
//
// # Line
//
// A lane has the jobs of one flow that have the same scope keys and priority, in order of arrival. A
// lane whose first job finds no room stands under one scope key that has none. There the
// flows take turns by start-time fair queueing (Goyal, Vin and Cheng, 1996): a flow's
// start tag is the larger of the scope key's virtual time and the flow's finish tag, and
// is moved on by the units it is given, divided by its share. The virtual time is the
// start tag of the flow that was served last.
//
// A job that has no room only for its weight would wait for ever behind lighter ones. When
// it has its turn, it is booked at its earliest start however far ahead, and others are placed
// around it (EASY backfilling, Lifka 1995). Such claims of a scope key take one job, or half of a
// limit's units; other heavy jobs are passed meanwhile.
package line
