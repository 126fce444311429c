package upstream

import "strings"

// fieldMember is a member of a structured field (RFC 9651): an item of a list, or of
// a dictionary if it has a key. Its value and the values of its parameters are bare items
// as in the field; of parameters with one name, the last counts.
type fieldMember struct {
	key, value string
	params     map[string]string
}

// mostFieldMembers is how many members of a field are read. No upstream has as many
// limits; a longer field is an attack.
const mostFieldMembers = 32

// fieldMembersIn reads the lines of a field, a list or a dictionary. RFC 9651 ignores a whole
// field if it has a mistake; here a mistake costs only its member.
func fieldMembersIn(lines []string) []fieldMember {
	var members []fieldMember
	for _, line := range lines {
		for rest := line; rest != "" && len(members) < mostFieldMembers; {
			var text string
			text, rest = cutUnquoted(rest, ',')
			if m, ok := fieldMemberIn(strings.Trim(text, " \t")); ok {
				members = append(members, m)
			}
		}
	}
	return members
}

// fieldMemberIn reads one member; false if it is malformed.
func fieldMemberIn(text string) (fieldMember, bool) {
	value, rest := cutUnquoted(text, ';')
	m := fieldMember{value: value, params: make(map[string]string)}
	if key, value, ok := strings.Cut(m.value, "="); ok && isFieldKey(key) {
		m.key, m.value = key, value
	}
	for rest != "" {
		var param string
		param, rest = cutUnquoted(rest, ';')
		key, value, hasValue := strings.Cut(strings.TrimLeft(param, " "), "=")
		if !isFieldKey(key) || hasValue && value == "" {
			return fieldMember{}, false
		}
		m.params[key] = value // no value means the boolean true, which nothing here needs
	}
	return m, m.value != ""
}

// cutUnquoted is strings.Cut at the first separator that is not within a string.
func cutUnquoted(s string, separator byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++ // an escaped character ends nothing
		case s[i] == '"':
			quoted = !quoted
		case s[i] == separator && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// isFieldKey reports whether s is a key of a dictionary or a parameter.
func isFieldKey(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz*"
	return s != "" && strings.Contains(letters, s[:1]) && strings.Trim(s, letters+"0123456789_-.") == ""
}

// name is the value as a name; false if it is not a string, or not a name.
func (m fieldMember) name() (string, bool) {
	name, ok := unquoted(m.value)
	return name, ok && isName(name)
}

// unquoted reads a string (RFC 9651, section 3.3.3), whatever characters it has; false
// if it is malformed.
func unquoted(s string) (string, bool) {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return "", false
	}
	var text strings.Builder
	for rest := s[1 : len(s)-1]; rest != ""; rest = rest[1:] {
		if rest[0] == '"' {
			return "", false
		}
		if rest[0] == '\\' {
			rest = rest[1:]
			if rest == "" || rest[0] != '"' && rest[0] != '\\' {
				return "", false
			}
		}
		text.WriteByte(rest[0])
	}
	return text.String(), true
}
