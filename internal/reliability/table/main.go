// Command table writes the rows that the tests of package reliability measured into
// a document: table ROWS DOCUMENT.
package main

import (
	"fmt"
	"os"

	"github.com/asynq-throttle/asynq-throttle/internal/reliability"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: table ROWS DOCUMENT")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write puts the rows of the file at rowsPath into the document.
func write(rowsPath, documentPath string) error {
	file, err := os.Open(rowsPath)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	rows, err := reliability.ReadRows(file)
	if err != nil {
		return err
	}
	document, err := os.ReadFile(documentPath)
	if err != nil {
		return err
	}
	text, err := reliability.Replace(string(document), rows)
	if err != nil {
		return err
	}
	return os.WriteFile(documentPath, []byte(text), 0o600) // the document exists and keeps its mode
}
