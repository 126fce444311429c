package line

import "slices"

// entry is how many units are in one sub-window.
type entry struct{ at, units int64 }

// entries are in order of their sub-windows, none of them with 0 units.
type entries []entry

// add changes the units of a sub-window. A sub-window never has fewer than 0 units.
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

// of returns the units of a sub-window.
func (e entries) of(at int64) int64 {
	if i, found := e.find(at); found {
		return e[i].units
	}
	return 0
}

// find returns the index of a sub-window.
func (e entries) find(at int64) (int, bool) {
	return slices.BinarySearchFunc(e, at, func(x entry, at int64) int { return int(max(-1, min(1, x.at-at))) })
}

// drop forgets the sub-windows before at, and reports whether there were any.
func (e *entries) drop(at int64) bool {
	n := 0
	for n < len(*e) && (*e)[n].at < at {
		n++
	}
	*e = (*e)[n:]
	return n > 0
}

func (e entries) list() []Entry {
	list := make([]Entry, len(e))
	for i, x := range e {
		list[i] = Entry{x.at, x.units}
	}
	return list
}

// coarser returns the entries in sub-windows that are longer by the factor times.
func (e entries) coarser(times int64) entries {
	var all entries
	for _, x := range e {
		all.add(x.at/times, x.units)
	}
	return all
}

func (e entries) total() int64 {
	sum := int64(0)
	for _, x := range e {
		sum += x.units
	}
	return sum
}

// merge appends the entries of a and b to to, in one order. Entries of b before from are moved to from.
func merge(to, a, b entries, from int64) entries {
	late := int64(0)
	for len(b) > 0 && b[0].at < from {
		late += b[0].units
		b = b[1:]
	}
	for len(a) > 0 || len(b) > 0 || late > 0 {
		switch {
		case late > 0 && (len(a) == 0 || a[0].at >= from):
			to = append(to, entry{from, late})
			late = 0
		case len(b) == 0 || len(a) > 0 && a[0].at <= b[0].at:
			to = append(to, a[0])
			a = a[1:]
		default:
			to = append(to, b[0])
			b = b[1:]
		}
	}
	return to
}
