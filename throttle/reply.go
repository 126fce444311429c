package throttle

import "fmt"

// reply is what a script answered: integers and texts.
type reply []any

// is tells whether a reply begins with these kinds: i an integer, t a text.
func (r reply) is(kinds string) bool {
	if len(r) < len(kinds) {
		return false
	}
	for i := range len(kinds) {
		_, isInteger := r[i].(int64)
		_, isText := r[i].(string)
		if kinds[i] == 'i' && !isInteger || kinds[i] == 't' && !isText {
			return false
		}
	}
	return true
}

// integer is an element that is has found to be one.
func (r reply) integer(i int) int64 {
	n, _ := r[i].(int64)
	return n
}

// text is an element that is has found to be one.
func (r reply) text(i int) string {
	text, _ := r[i].(string)
	return text
}

func badReply(script string, r reply) error {
	return fmt.Errorf("throttle: script %s gave an answer of %d values that is none of its own: %w", script, len(r), ErrState)
}
