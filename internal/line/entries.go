package line

import "slices"

// entry is how many units are in one sub-window.
type entry struct{ at, units int64 }

// entries are in order of their sub-windows, none of them with 0 units.
type entries []entry

// add changes the units of a sub-window. Less than are there leave none: what is not
// there cannot be taken away.
func (e *entries) add(at, units int64) {
	i, found := e.find(at)
	switch {
	case found && (*e)[i].units+units > 0:
		(*e)[i].units += units
	case found:
		*e = slices.Delete(*e, i, i+1)
	case units > 0:
		*e = slices.Insert(*e, i, entry{at, units})
	}
}

// find is where a sub-window is.
func (e entries) find(at int64) (int, bool) {
	return slices.BinarySearchFunc(e, at, func(x entry, at int64) int { return int(max(-1, min(1, x.at-at))) })
}

// drop forgets the sub-windows before at.
func (e *entries) drop(at int64) {
	n := 0
	for n < len(*e) && (*e)[n].at < at {
		n++
	}
	*e = (*e)[n:]
}

func (e entries) total() int64 {
	sum := int64(0)
	for _, x := range e {
		sum += x.units
	}
	return sum
}

// merge puts two in one order; what is before from is moved there.
func merge(a, b entries, from int64) entries {
	all := make(entries, 0, len(a)+len(b))
	late := int64(0)
	for _, x := range b {
		if x.at < from {
			late += x.units
		}
	}
	if late > 0 {
		all = append(all, entry{from, late})
	}
	all = append(all, a...)
	for _, x := range b {
		if x.at >= from {
			all = append(all, x)
		}
	}
	slices.SortStableFunc(all, func(x, y entry) int { return int(max(-1, min(1, x.at-y.at))) })
	return all
}
