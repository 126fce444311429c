package wire

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// This file has the names of keys, scope keys and lanes in Redis.

// StateVersion is part of every key. It rises when the format of the state in Redis changes, so that two formats
// never share a key.
const StateVersion = "4"

// MaxEncoded is the greatest length of a user's value in a key. A longer value is replaced by its hash.
const MaxEncoded = 128

// Prefix begins every key of a throttle's line and ledgers. It has the throttle's name as hash tag,
// so that all keys lie in one slot of a Redis Cluster.
func Prefix(throttle string) string { return "thr:{" + throttle + "}:" + StateVersion + ":" }

// ControlKey returns the only key that a call of a script declares, for the route. The scripts build the other
// keys from the prefix.
func ControlKey(throttle string) string { return Prefix(throttle) + "control" }

// ProcessesKey is the hash in which processes of all state versions publish their configuration.
func ProcessesKey(throttle string) string { return "thr:{" + throttle + "}:processes" }

// ScopeKey returns the name of a scope key in Redis. The name has no blank, comma or bar.
func ScopeKey(scope, key string) string { return scope + ":" + Encode(key) }

// SplitScopeKey returns the scope and the key of a scope key's name; false if the text is no such name.
// A key of which Redis has only the hash stays encoded.
func SplitScopeKey(name string) (scope, key string, is bool) {
	scope, encoded, is := strings.Cut(name, ":")
	return scope, Decode(encoded), is
}

// Encode writes any bytes so that they can stand in a Redis key: letters, digits and _ . - @ as they
// are, other bytes as %XX. A value that gets too long is replaced by ~ and its SHA-256. Different
// values never share a key, since ~ itself is written as %7E.
func Encode(value string) string {
	escaped := 0
	for i := range len(value) {
		if !IsSafe(value[i]) && value[i] != '@' {
			escaped++
		}
	}
	if len(value)+2*escaped > MaxEncoded {
		sum := sha256.Sum256([]byte(value))
		return "~" + base64.RawURLEncoding.EncodeToString(sum[:])
	}
	if escaped == 0 {
		return value
	}
	var b strings.Builder
	for i := range len(value) {
		if c := value[i]; IsSafe(c) || c == '@' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Readable reads what Encode wrote; false for a hash.
func Readable(encoded string) (string, bool) {
	if strings.HasPrefix(encoded, "~") {
		return "", false
	}
	value, err := url.PathUnescape(encoded)
	return value, err == nil
}

// Decode returns the value that was encoded, or its hash where Redis has only the hash.
func Decode(encoded string) string {
	if value, is := Readable(encoded); is {
		return value
	}
	return encoded
}

// IsHash reports whether a key is a hash, as answers have it where Redis has only the hash.
func IsHash(key string) bool {
	hash, is := strings.CutPrefix(key, "~")
	sum, err := base64.RawURLEncoding.DecodeString(hash)
	return is && err == nil && len(sum) == sha256.Size
}

// IsName reports whether a throttle's or a scope's name can stand in a Redis key as it is.
func IsName(name string) bool {
	if len(name) == 0 || len(name) > 64 {
		return false
	}
	for i := range len(name) {
		if !IsSafe(name[i]) {
			return false
		}
	}
	return true
}

// IsSafe reports whether a byte of a name needs no encoding.
func IsSafe(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}

// LaneName names a lane: the flow, # and the priority if that is not 0, a bar, and the names of the
// scope keys.
func LaneName(flow string, priority int, scopeKeys []string) string {
	var b strings.Builder
	b.WriteString(flow)
	if priority > 0 {
		b.WriteByte('#')
		b.WriteString(strconv.Itoa(priority))
	}
	b.WriteByte('|')
	for i, name := range scopeKeys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name)
	}
	return b.String()
}

// LaneParts splits a lane's name; false if the text is no such name.
func LaneParts(lane string) (flow string, priority int, scopeKeys string, is bool) {
	flow, scopeKeys, is = strings.Cut(lane, "|")
	flow, lower, hasPriority := strings.Cut(flow, "#")
	if hasPriority {
		n, err := strconv.Atoi(lower)
		priority, is = n, is && err == nil
	}
	return flow, priority, scopeKeys, is
}

// global is the name of the scope that has one key, which jobs do not name.
const global = "global"

// LaneKeys returns the keys of the jobs in a lane, by scope; false if the lane's name cannot be
// read. fairScope is the scope whose keys are the flows, or empty. A key of which Redis has only the
// hash stays encoded.
func LaneKeys(lane, fairScope string) (keys map[string]string, is bool) {
	flow, _, names, is := LaneParts(lane)
	keys = make(map[string]string)
	if flow != "" && fairScope != "" {
		keys[fairScope] = Decode(flow)
	}
	if names == "" {
		return keys, is
	}
	for name := range strings.SplitSeq(names, ",") {
		scope, key, isName := SplitScopeKey(name)
		is = is && isName
		if isName && scope != global {
			keys[scope] = key
		}
	}
	return keys, is
}
