package calendar

import "sync"

// Memory keeps what was read from texts, for as long as the process lives. The zero value is empty. It is safe for use
// by many goroutines. What it returns is shared and must not be changed.
type Memory[T any] struct{ known sync.Map }

// Read returns what parse makes of a text, which it calls once for each text that it can read.
func (m *Memory[T]) Read(text string, parse func(string) (*T, error)) (*T, error) {
	found, _ := m.known.Load(text)
	if read, is := found.(*T); is {
		return read, nil
	}
	read, err := parse(text)
	if err != nil {
		return nil, err
	}
	m.known.Store(text, read)
	return read, nil
}
