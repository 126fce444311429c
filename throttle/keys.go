package throttle

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
)

// stateVersion stands in every key. It goes up when the shape of what is kept
// in Redis changes, so that two shapes never have the same name.
const stateVersion = "4"

// maxEncoded is the longest that a user's value may become in a key; what is
// longer is replaced by its hash.
const maxEncoded = 128

// keys are the Redis keys of one throttle. They all carry the throttle's name as
// hash tag, so that they lie in one slot of a Redis Cluster. The scripts build them
// from the prefix; only the control key is declared, for the route.
type keys struct{ prefix, control string }

func newKeys(name string) keys {
	prefix := "thr:{" + name + "}:" + stateVersion + ":"
	return keys{prefix, prefix + "control"}
}

// scopeKeyName names a scope key as Redis has it. It has no blank, comma or bar.
func scopeKeyName(scope, key string) string { return scope + ":" + encode(key) }

// splitName returns the scope and the key of a scope key's name. A key of which Redis has only the
// hash stays encoded.
func splitName(name string) (scope, key string, is bool) {
	scope, encoded, is := strings.Cut(name, ":")
	return scope, decoded(encoded), is
}

// encode writes any bytes so that they can stand in a Redis key: letters, digits and _ . - @ as they
// are, other bytes as %XX. A value that gets too long is replaced by ~ and its SHA-256. Different
// values never share a key, since ~ itself is written as %7E.
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

// isHash reports whether a key is a hash, as answers have it where Redis has only the hash.
func isHash(key string) bool {
	hash, is := strings.CutPrefix(key, "~")
	sum, err := base64.RawURLEncoding.DecodeString(hash)
	return is && err == nil && len(sum) == sha256.Size
}

// decode reads what encode wrote; false for a hash.
func decode(encoded string) (string, bool) {
	if strings.HasPrefix(encoded, "~") {
		return "", false
	}
	value, err := url.PathUnescape(encoded)
	return value, err == nil
}

// decoded is the value, or its hash where Redis has only that.
func decoded(encoded string) string {
	if value, readable := decode(encoded); readable {
		return value
	}
	return encoded
}

func safeByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}
