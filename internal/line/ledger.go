package line

// Never is the instant of what does not come.
const Never = int64(1) << 53

// ledger are the units of one limit of one scope key over time.
type ledger struct {
	Span
	precision     int64
	since         int64 // from when it counts, by its own time
	spent, booked entries
	merged        entries // of the last search, kept so that the next one uses its memory
	edges                 // nothing but for a quota
}

// trim forgets what has left the window at now, and bookings whose grace is over. It reports
// whether there were any.
func (d *ledger) trim(now, grace int64) bool {
	left := d.spent.drop(d.subWindow(now) - d.n() + 1)
	return d.booked.drop(d.subWindow(max(0, now-grace))) || left
}

// spend counts a start, book books one; negative units take it back. A ledger never has more
// than a script can count exactly: what is beyond that is not counted.
func (d *ledger) spend(sub, units int64) { d.spent.add(sub, min(units, Never-d.spent.total())) }

func (d *ledger) book(sub, units int64) { d.booked.add(sub, min(units, Never-d.booked.total())) }

// finest is how many sub-windows a window has at most once it counts more than twice as many units.
const finest = 1000

// coarsen makes a ledger coarser that was exact, or nearly so, and has come to count many units, since a
// limit was raised or is not enforced. Its entries go into sub-windows of a thousandth of the window at
// least, each into one that contains its own: it counts for as long as before, or longer.
func (d *ledger) coarsen(limits []Limit) {
	least := (d.Length + finest - 1) / finest
	if d.spent.total() <= 2*finest || d.precision >= least || !d.Kind.logged() {
		return
	}
	for _, limit := range limits {
		if limit.Span == d.Span {
			least = max(least, limit.Precision)
		}
	}
	times := (least + d.precision - 1) / d.precision
	d.precision *= times
	d.spent, d.booked = d.spent.coarser(times), d.booked.coarser(times)
}

func (d *ledger) empty() bool { return len(d.spent)+len(d.booked) == 0 }
