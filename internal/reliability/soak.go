package reliability

import (
	"fmt"
	"os"
	"strings"
)

// Figure is one thing that a soak measured.
type Figure struct{ What, Value string }

// WriteSoak puts a table of figures between the markers of the document at path, which exists.
func WriteSoak(path string, figures []Figure) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reliability: soak: %w", err)
	}
	text, err := replace(string(document), soakBegins, soakTable(figures))
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600) // the document exists and keeps its mode
}

// soakTable returns figures in Markdown, in their order.
func soakTable(figures []Figure) string {
	var b strings.Builder
	b.WriteString("| what | measured |\n|---|---|\n")
	for _, f := range figures {
		fmt.Fprintf(&b, "| %s | %s |\n", f.What, f.Value)
	}
	return b.String()
}
