package redistest

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
)

// ReadFrame reads one whole value of Redis' protocol (RESP2 or RESP3), with all
// that is nested in it, and returns its bytes as they came. It reads requests of a
// client in the same way; an inline command is one line.
func ReadFrame(r *bufio.Reader) ([]byte, error) { return appendFrame(nil, r) }

func appendFrame(frame []byte, r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	frame = append(frame, line...)
	switch kind := line[0]; kind {
	case '$', '=', '!': // a string and its length
		n, err := length(line)
		if err != nil || n < 0 {
			return frame, err
		}
		body := make([]byte, n+2)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, err
		}
		return append(frame, body...), nil
	case '*', '~', '>', '%', '|': // values and their number
		n, err := length(line)
		if err != nil {
			return nil, err
		}
		switch kind {
		case '%':
			n *= 2 // keys and values
		case '|':
			n = 2*n + 1 // attributes, and the value that they describe
		}
		for range max(0, n) {
			if frame, err = appendFrame(frame, r); err != nil {
				return nil, err
			}
		}
	}
	return frame, nil
}

// length reads the number in a line such as "$12\r\n".
func length(line []byte) (int, error) {
	if len(line) < 4 {
		return 0, fmt.Errorf("redistest: %q has no length", line)
	}
	n, err := strconv.Atoi(string(line[1 : len(line)-2]))
	if err != nil {
		return 0, fmt.Errorf("redistest: %q has no length: %w", line, err)
	}
	return n, nil
}
