package line

import (
	"cmp"
	"iter"
	"slices"
)

// ranked orders names by their scores, and names with equal scores alphabetically: a binary heap that knows the
// index of each name. The zero value is empty.
type ranked[S cmp.Ordered] struct {
	heap  []scored[S]
	index map[string]int // in heap
}

type scored[S cmp.Ordered] struct {
	name  string
	score S
}

func (a scored[S]) before(b scored[S]) bool {
	return a.score < b.score || a.score == b.score && a.name < b.name
}

func (r *ranked[S]) len() int { return len(r.heap) }

func (r *ranked[S]) get(name string) (score S, is bool) {
	i, is := r.index[name]
	if is {
		score = r.heap[i].score
	}
	return score, is
}

func (r *ranked[S]) first() (name string, score S, is bool) {
	if len(r.heap) == 0 {
		return "", score, false
	}
	return r.heap[0].name, r.heap[0].score, true
}

// at returns the name of a rank, from 0 on.
func (r *ranked[S]) at(rank int) (name string, score S, is bool) {
	switch {
	case rank == 0: // needs no order
		return r.first()
	case rank >= len(r.heap):
		return "", score, false
	}
	name = r.sorted()[rank]
	score, is = r.get(name)
	return name, score, is
}

func (r *ranked[S]) set(name string, score S) {
	i, is := r.index[name]
	if !is {
		if r.index == nil {
			r.index = make(map[string]int)
		}
		i = len(r.heap)
		r.heap = append(r.heap, scored[S]{name, score})
		r.index[name] = i
	}
	r.heap[i].score = score
	r.down(r.up(i))
}

func (r *ranked[S]) delete(name string) {
	i, is := r.index[name]
	if !is {
		return
	}
	last := len(r.heap) - 1
	r.swap(i, last)
	r.heap[last] = scored[S]{}
	r.heap = r.heap[:last]
	delete(r.index, name)
	if i < last {
		r.down(r.up(i))
	}
}

// until returns the names whose score is at most this one, in order.
func (r *ranked[S]) until(score S) []string {
	var found []scored[S]
	var look func(i int)
	look = func(i int) {
		if i < len(r.heap) && r.heap[i].score <= score {
			found = append(found, r.heap[i])
			look(2*i + 1)
			look(2*i + 2)
		}
	}
	look(0)
	return inOrder(found)
}

// sorted returns all names in order.
func (r *ranked[S]) sorted() []string {
	all := slices.Clone(r.heap)
	return inOrder(all)
}

func inOrder[S cmp.Ordered](all []scored[S]) []string {
	slices.SortFunc(all, func(a, b scored[S]) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.name, b.name))
	})
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].name
	}
	return names
}

// all yields the names in no order. The caller must not set or delete names meanwhile.
func (r *ranked[S]) all() iter.Seq2[string, S] {
	return func(yield func(string, S) bool) {
		for _, x := range r.heap {
			if !yield(x.name, x.score) {
				return
			}
		}
	}
}

func (r *ranked[S]) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !r.heap[i].before(r.heap[parent]) {
			break
		}
		r.swap(i, parent)
		i = parent
	}
	return i
}

func (r *ranked[S]) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(r.heap); child++ {
			if r.heap[child].before(r.heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		r.swap(i, least)
		i = least
	}
}

func (r *ranked[S]) swap(i, j int) {
	if i != j {
		r.heap[i], r.heap[j] = r.heap[j], r.heap[i]
		r.index[r.heap[i].name], r.index[r.heap[j].name] = i, j
	}
}
