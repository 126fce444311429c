package reliability

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// RowsVariable is the environment variable that names the file to which the tests
// append their rows.
const RowsVariable = "RELIABILITY_ROWS"

// Row is what one case measured.
type Row struct {
	// Cases names the case as the document does, such as "F5" or "F23 −60 s".
	Cases string `json:"cases"`
	// Done describes the fault, and Servers the servers it hit.
	Done    string `json:"done"`
	Servers string `json:"servers"`
	// Jobs is how many jobs arrived, Ran how many of them ran, Twice how many ran more than once.
	Jobs  int `json:"jobs"`
	Ran   int `json:"ran"`
	Twice int `json:"twice"`
	// Over is how many windows were over their limit, Extra by how many units at most.
	Over  int   `json:"over"`
	Extra int64 `json:"extra"`
	// Lost is how many units of acknowledged charges were lost that would still count.
	Lost int `json:"lost"`
	// Fault is how long the fault lasted. Decided is the time from its end to the next decision
	// by Redis, Started the time to the next start of a job.
	Fault   time.Duration `json:"fault"`
	Decided time.Duration `json:"decided"`
	Started time.Duration `json:"started"`
	// Took is the time from the first start to the last.
	Took time.Duration `json:"took"`
	// PutBack is how often a job was put back, on average.
	PutBack float64 `json:"put_back"`
}

// Append adds the row to the file at path, and creates the file if needed.
func (r Row) Append(path string) (err error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("reliability: rows: %w", err)
	}
	defer func() {
		if closing := file.Close(); err == nil {
			err = closing
		}
	}()
	// One write for the whole line, so that tests that end together do not mix their lines.
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("reliability: rows: %w", err)
	}
	_, err = file.Write(append(line, '\n'))
	return err
}

// ReadRows reads what Append has written.
func ReadRows(r io.Reader) ([]Row, error) {
	var rows []Row
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var row Row
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("reliability: rows: line %d: %w", len(rows)+1, err)
		}
		rows = append(rows, row)
	}
	return rows, lines.Err()
}
