package chat

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Done is the data of a stream's last event.
const Done = "[DONE]"

// longestLine bounds a line of a stream, in bytes.
const longestLine = 1 << 20

// readStream reads a streamed completion: each line that begins with "data:" has a chunk. It
// reads to the end of the body, beyond the last event.
func (a *Answer) readStream(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, longestLine)
	var text strings.Builder
	done := false
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data:")
		data = strings.TrimSpace(data)
		switch {
		case !is || done || data == "":
		case data == Done:
			done = true
		default:
			if err := a.readChunk(data, &text); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if !done {
		return io.ErrUnexpectedEOF
	}
	a.Text = text.String()
	return nil
}

func (a *Answer) readChunk(data string, text *strings.Builder) error {
	var chunk Reply
	if err := json.Unmarshal([]byte(data), &chunk); err != nil {
		return fmt.Errorf("a chunk cannot be read: %w", err)
	}
	if chunk.Error != nil {
		return errors.New(chunk.Error.Message)
	}
	if chunk.Usage != nil {
		a.Usage = chunk.Usage
	}
	for _, choice := range chunk.Choices {
		if choice.Index == 0 && choice.Delta != nil {
			text.WriteString(choice.Delta.Content)
		}
	}
	return nil
}
