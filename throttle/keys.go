package throttle

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// stateVersion stands in every key. It goes up when the shape of what is kept
// in Redis changes, so that two shapes never meet under one name.
const stateVersion = "3"

// maxEncoded is the longest that a user's value may become in a key; what is
// longer is replaced by its hash.
const maxEncoded = 128

// keys builds the Redis keys of one throttle. They all carry the throttle's
// name as hash tag, so that they lie in one slot of a Redis Cluster.
type keys struct {
	prefix  string
	control string
	shared  [4]string // those of the line that are the same for all jobs
}

func newKeys(name string) keys {
	prefix := "thr:{" + name + "}:" + stateVersion + ":"
	return keys{prefix, prefix + "control", [4]string{prefix + "line", prefix + "agenda", prefix + "ready", prefix + "tags"}}
}

// record is where the reservation of one job is kept.
func (k keys) record(id string) string { return k.prefix + "job:" + encode(id) }

// line is where the line is kept, as far as a job of this lane is concerned.
func (k keys) line(lane Lane) [6]string {
	return [6]string{
		k.shared[0], k.shared[1], k.shared[2], k.shared[3],
		k.prefix + "heads:" + lane.fairKey(), k.prefix + "lane:" + string(lane),
	}
}

// held are the lanes that a scope key holds; name is scope:key, the key encoded.
func (k keys) held(name string) string { return k.prefix + "held:" + name }

// scope is where the totals of one scope key's ledgers are kept; the key is
// encoded.
func (k keys) scope(scope, encoded string) string { return k.prefix + "key:" + scope + ":" + encoded }

// ledger is where the units of one limit of one scope key are kept; the key is
// encoded.
func (k keys) ledger(scope, encoded string, window time.Duration) string {
	return k.ledgerOf(scope, encoded, micros(window))
}

// ledgerOf is the same for a window as Redis has it.
func (k keys) ledgerOf(scope, encoded, window string) string {
	return k.prefix + "ledger:" + scope + ":" + encoded + ":" + window
}

// probed are a key that only check.lua uses, and one of each kind that there is.
func (k keys) probed() []string {
	line := k.line("check|")
	return append([]string{
		k.prefix + "check", k.control, k.record("check"), k.scope(Global, ""), k.ledger(Global, "", time.Second), k.held("check:"),
	}, line[:]...)
}

// encode writes any bytes a user may send so that they stay in their place
// within a key: letters, digits and _ . - @ as they are, other bytes as %XX. A
// value that gets too long is replaced by ~ and its SHA-256: different values
// never share a key, since ~ is itself written as %7E.
func encode(value string) string {
	escaped := 0
	for i := range len(value) {
		if !safeByte(value[i]) && value[i] != '@' {
			escaped++
		}
	}
	if len(value)+2*escaped > maxEncoded {
		sum := sha256.Sum256([]byte(value))
		return "~" + base64.RawURLEncoding.EncodeToString(sum[:])
	}
	if escaped == 0 {
		return value
	}
	var b strings.Builder
	for i := range len(value) {
		if c := value[i]; safeByte(c) || c == '@' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// decode reads what encode wrote. It returns false for a value that only its hash
// is left of.
func decode(encoded string) (string, bool) {
	if strings.HasPrefix(encoded, "~") {
		return "", false
	}
	value, err := url.PathUnescape(encoded)
	return value, err == nil
}

func safeByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}
