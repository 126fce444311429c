package calendar

import (
	"sync"
	"sync/atomic"
)

// mostKnown is how many texts a Memory keeps. Users may set ever new limits at run time.
const mostKnown = 10_000

// Memory keeps what was read from texts. When it has too many, it forgets all of them. The zero value is empty. It is
// safe for use by many goroutines. What it returns is shared and must not be changed.
type Memory[T any] struct {
	known sync.Map
	kept  atomic.Int64 // about how many
}

// Read returns what parse makes of a text, which it seldom calls twice for a text that it can read.
func (m *Memory[T]) Read(text string, parse func(string) (*T, error)) (*T, error) {
	found, _ := m.known.Load(text)
	if read, is := found.(*T); is {
		return read, nil
	}
	read, err := parse(text)
	if err != nil {
		return nil, err
	}
	if m.kept.Add(1) > mostKnown {
		m.known.Clear()
		m.kept.Store(1)
	}
	m.known.Store(text, read)
	return read, nil
}
