package upstream

import (
	"errors"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// SMTPWait reports whether err, which an SMTP client returned, has a reply in which the
// server asks to wait, and for how long. It returns false for a nil err, a permanent reply
// (5xx), a timeout or a broken connection, which are ordinary failures.
//
// How long depends on the reply code (RFC 5321, 4.2.2 and 4.2.3; RFC 4954, 6;
// RFC 3207, 4), refined by the enhanced code (RFC 3463) if there is one:
//
//	421        1 min   closing the channel: too busy, or going down to come back
//	421 4.7.x  5 min   the same by policy, such as a rate limit
//	454        1 min   authentication or TLS does not work for the moment
//	432        5 min   too many connections of this account
//	432 4.7.12 1 h     a password transition is needed: a person has to act
//	450, 451   5 min   busy, greylisted, a local error
//	452       15 min   no storage left
//
// RFC 5321, 4.5.4.1, wants half an hour between attempts in general, and less
// if the reason is known; greylisting commonly asks for 5 minutes.
//
// A 450, 451 or 452 is no wait if its enhanced code blames the mail at hand and not
// the server: an address (4.1.x), one mailbox that is full or busy (4.2.x), the
// dialogue, such as too many recipients (4.5.x), or the content (4.6.x). A 421 4.4.2 is
// none either: it ends a connection that was idle for too long. Such a mail needs an
// ordinary retry; other mails to the same server need not wait.
//
// SMTPWait reads the reply from a *textproto.Error (net/smtp) or an error with a method
// ErrorCode() int (github.com/wneessen/go-mail), wrapped or joined; of several
// replies, the one with the longest wait counts. Only if err has neither does it read the
// text, as for github.com/emersion/go-smtp, which keeps the code in a field: then a number
// counts only where SMTP clients write a reply code. go-smtp's text lacks the enhanced code;
// to pass it on, make a
// &textproto.Error{Code: e.Code, Msg: fmt.Sprintf("%d.%d.%d", …)}.
func SMTPWait(err error) (wait time.Duration, asked bool) {
	for _, r := range repliesOf(err) {
		wait = max(wait, r.wait())
	}
	return wait, wait > 0
}

// smtpReply is a reply of a server.
type smtpReply struct {
	code int // 400 to 599
	// The subject and detail of the enhanced code, 7 and 12 of 4.7.12. Both are 0
	// without one, and for the enhanced code 4.0.0, which says nothing.
	subject, detail int
}

// wait is how long the server asks to wait; 0 if it does not ask.
func (r smtpReply) wait() time.Duration {
	switch r.code {
	case 421:
		switch {
		case r.subject == 4 && r.detail == 2:
			return 0
		case r.subject == 7:
			return 5 * time.Minute
		}
		return time.Minute
	case 454:
		return time.Minute
	case 432:
		if r.subject == 7 && r.detail == 12 {
			return time.Hour
		}
		return 5 * time.Minute
	case 450, 451:
		if r.blamesMail() {
			return 0
		}
		return 5 * time.Minute
	case 452:
		if r.blamesMail() {
			return 0
		}
		return 15 * time.Minute
	}
	return 0
}

// blamesMail reports whether the enhanced code is about the mail at hand.
func (r smtpReply) blamesMail() bool {
	switch r.subject {
	case 1, 2, 5, 6: // address, mailbox, protocol, content
		return true
	}
	return false
}

// repliesOf returns the replies in err and in the errors that it wraps. It reads a wrapped
// error first: the text of a reply begins with its code, that of a wrapper does not.
func repliesOf(err error) []smtpReply {
	if err == nil {
		return nil
	}
	if r, ok := typedReply(err); ok {
		return []smtpReply{r}
	}
	var replies []smtpReply
	for _, wrapped := range unwrap(err) {
		replies = append(replies, repliesOf(wrapped)...)
	}
	if len(replies) > 0 {
		return replies
	}
	if r, ok := replyIn(err.Error()); ok {
		return []smtpReply{r}
	}
	return nil
}

// unwrap returns the errors that err wraps directly.
func unwrap(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{errors.Unwrap(err)}
}

// typedReply returns the reply of an error that has its code as a number. The
// enhanced code is in the text, behind the code.
func typedReply(err error) (smtpReply, bool) {
	var code int
	switch e := err.(type) { //nolint:errorlint // repliesOf looks at each wrapped error by itself
	case *textproto.Error:
		code = e.Code
	case interface{ ErrorCode() int }:
		code = e.ErrorCode()
	}
	if code < 400 || code > 599 {
		return smtpReply{}, false // go-mail: 0 if the error is not the server's
	}
	if r, ok := replyIn(err.Error()); ok && r.code == code {
		return r, true
	}
	return smtpReply{code: code}, true
}

// How much of a text is read, in bytes.
const (
	// mostReplyText of the whole: a reply line has at most 512 (RFC 5321,
	// 4.5.3.1.5), and the text before it in an error is short.
	mostReplyText = 4096
	// mostBehindCode behind each number: more than the longest enhanced code and
	// the longest word of counted. It keeps the search linear in the text.
	mostBehindCode = 32
)

// replyIn finds the first reply in an error's text, permanent or not: after it come the
// server's words, with any numbers in them. A number counts as a reply code only
//   - with an enhanced code of its class behind it: "421 4.7.0 …", "451-4.3.0 …";
//   - at the beginning of a line: "421 Service not available", "421";
//   - behind "SMTP error ", as go-smtp writes: "SMTP error 421: …";
//   - behind a colon if the word SMTP came before, as in go-mail's
//     "sending SMTP RCPT TO command: 450 …",
//
// and in the last three cases only if it does not count something, as in "452 bytes".
// No other number counts (an address, a port, a size): an overlooked reply costs a retry,
// an imagined one delays all mail to the server.
func replyIn(text string) (smtpReply, bool) {
	text = text[:min(len(text), mostReplyText)]
	spoken := len(text)
	if at := smtpWord.FindStringIndex(text); at != nil {
		spoken = at[0]
	}
	for i := range len(text) - 2 {
		before, code, after := text[:i], text[i:i+3], text[i+3:min(i+3+mostBehindCode, len(text))]
		if code[0] != '4' && code[0] != '5' || !isDigits(code) {
			continue
		}
		number, _ := strconv.Atoi(code)
		if standsApart(before) {
			if r, ok := enhancedReply(number, after); ok {
				return r, true
			}
		}
		if opensReply(before, i > spoken) && !counts(after) {
			return smtpReply{code: number}, true
		}
	}
	return smtpReply{}, false
}

var (
	// smtpWord is SMTP as a word, not as a part of a host's name.
	smtpWord = regexp.MustCompile(`(?i)(?:^|[^\w.@-])smtp(?:[^\w.@-]|$)`)
	// enhancedCode follows a reply code; the quote is textproto's.
	enhancedCode = regexp.MustCompile(`^[ -]"?([45])\.(\d{1,3})\.(\d{1,3})(?:[^\w.]|$)`)
	// counted is a unit or a noun that a number counts, right behind the number.
	counted = regexp.MustCompile(
		`(?i)^ (?:of|per|[kmgt]?i?b|bits?|bytes|octets|characters|lines|[nmµ]?s|secs?|seconds|min|mins|minutes|h|hours|days` +
			`|times|attempts|retries|errors|failures|connections|sessions|requests|messages` +
			`|mails|emails|e-mails|recipients|addresses|users|jobs|tasks)(?:[^\w]|$)`)
)

// enhancedReply reads the enhanced code behind a reply code, which must be of the
// same class, 4 or 5.
func enhancedReply(code int, after string) (smtpReply, bool) {
	m := enhancedCode.FindStringSubmatch(after)
	if len(m) < 4 || m[1] != strconv.Itoa(code/100) {
		return smtpReply{}, false
	}
	subject, _ := strconv.Atoi(m[2])
	detail, _ := strconv.Atoi(m[3])
	return smtpReply{code: code, subject: subject, detail: detail}, true
}

// standsApart reports whether a number behind this text is not the end of a longer
// number, of a name or of an address.
func standsApart(before string) bool {
	return before == "" || strings.ContainsRune(" \t\n([\"'", rune(before[len(before)-1]))
}

// opensReply reports whether a reply without an enhanced code may follow this text. spoken means that
// the text has the word SMTP.
func opensReply(before string, spoken bool) bool {
	return before == "" || strings.HasSuffix(before, "\n") || strings.HasSuffix(before, "SMTP error ") ||
		spoken && strings.HasSuffix(before, ": ")
}

// counts reports whether a number with this text behind it is not a reply code but
// a count, or the beginning of something longer.
func counts(after string) bool {
	switch {
	case after == "", after[0] == '\r', after[0] == '\n': // a reply need not have a text
		return false
	case strings.HasPrefix(after, ": "): // as go-smtp writes
		return false
	}
	return after[0] != ' ' || counted.MatchString(after)
}
