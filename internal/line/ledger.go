package line

import "slices"

// Never is the instant of what does not come.
const Never = int64(1) << 53

// ledger are the units of one limit of one scope key over time.
type ledger struct {
	Span
	precision     int64
	since         int64 // from when it counts, by its own time
	spent, booked entries
	merged        entries // of the last look, kept for its memory
}

// n is how many sub-windows count together.
func (d *ledger) n() int64 { return d.subWindows(d.precision) }

// sub is the sub-window of an instant of the ledger's time, startOf the first instant of a
// sub-window.
func (d *ledger) sub(at int64) int64 { return at / d.precision }

func (d *ledger) startOf(sub int64) int64 { return sub * d.precision }

// trim forgets what has left the window at now, and bookings whose grace is over. It reports
// whether there were any.
func (d *ledger) trim(now, grace int64) bool {
	left := d.spent.drop(d.sub(now) - d.n() + 1)
	return d.booked.drop(d.sub(max(0, now-grace))) || left
}

// spend counts a start, book books one; negative units take it back. A ledger never has more
// than a script can count exactly: what is beyond that is not counted.
func (d *ledger) spend(sub, units int64) { d.spent.add(sub, min(units, Never-d.spent.total())) }

func (d *ledger) book(sub, units int64) { d.booked.add(sub, min(units, Never-d.booked.total())) }

// finest is how many sub-windows of a window there are at most that counts more units than twice as many.
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

// uses returns how many units the window that ends at now holds, and how many are booked. A start that
// was granted for later counts as booked until then.
func (d *ledger) uses(now int64) (used, booked int64) {
	for _, e := range d.spent {
		if e.at <= d.sub(now) {
			used += e.units
		} else {
			booked += e.units
		}
	}
	return used, booked + d.booked.total()
}

// earliest is the first start at or after at with which no window holds too much:
// every window that contains it holds no more than room before. It counts promises or not.
func (d *ledger) earliest(at, now, room int64, promises bool) int64 {
	if room < 0 {
		return Never
	}
	all := d.spent
	if promises && len(d.booked) > 0 {
		d.merged = merge(d.merged[:0], d.spent, d.booked, d.sub(now))
		all = d.merged
	}
	if all.total() <= room {
		return at
	}
	n, first := d.n(), d.sub(at)
	x := first
	if d.Kind.Renewed() {
		x = max(first, placesFrom(d.spent, n, room))
	}
	sum, in, out := int64(0), 0, 0 // of the window that ends at x or, checking, at a later entry
	for {
		for in < len(all) && all[in].at <= x {
			sum += all[in].units
			in++
		}
		for out < in && all[out].at+n <= x {
			sum -= all[out].units
			out++
		}
		if sum > room {
			x = all[out].at + n
			continue
		}
		// The windows that end later and still contain x.
		y, fits := x, true
		laterSum, laterOut := sum, out
		for i := in; i < len(all) && all[i].at < x+n; i++ {
			y = all[i].at
			laterSum += all[i].units
			for all[laterOut].at+n <= y {
				laterSum -= all[laterOut].units
				laterOut++
			}
			if laterSum > room && (i+1 == len(all) || all[i+1].at > y) {
				fits = false
				break
			}
		}
		if fits {
			break
		}
		x = y
	}
	if x == first {
		return at
	}
	return d.startOf(x)
}

// placesFrom returns the sub-window from which on running jobs occupy no more than room. A job that
// starts later has its place already, since running jobs may renew until then.
func placesFrom(all entries, n, room int64) int64 {
	sum := int64(0)
	for _, e := range slices.Backward(all) {
		if sum += e.units; sum > room {
			return e.at + n
		}
	}
	return 0
}
