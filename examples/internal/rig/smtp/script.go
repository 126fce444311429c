package smtp

import (
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

// The recipients' local parts that the bundled server has a script for.
const (
	localNobody = "nobody" // refused for good: 550
	localFull   = "full"   // refused the first time: 452, of this mailbox alone
	localBusy   = "busy"   // the first time its whole domain closes: 451 to everybody
)

// ClosedFor is how long a domain of the bundled server stays closed. Real servers ask for minutes (see
// upstream.SMTPWait); the bundled campaign lasts half a minute.
const ClosedFor = 2500 * time.Millisecond

// script decides how the bundled server answers recipients. The zero value is ready. It is safe for concurrent use.
type script struct {
	mu     sync.Mutex
	seen   map[string]bool      // recipients that came before, of those that count
	closed map[string]time.Time // domains, until when
}

var (
	errNobody = &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "No such user here"}
	errFull   = &smtp.SMTPError{Code: 452, EnhancedCode: smtp.EnhancedCode{4, 2, 2},
		Message: "Mailbox full, please come back later"}
	errBusy = &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 2},
		Message: "System not accepting messages now, please come back later"}
)

// answer returns nil to accept the recipient; closed reports that the recipient's whole domain takes nothing now.
func (s *script) answer(to string, now time.Time) (refusal *smtp.SMTPError, closed bool) {
	local, domain, _ := strings.Cut(strings.ToLower(to), "@")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case now.Before(s.closed[domain]):
		return errBusy, true
	case local == localNobody:
		return errNobody, false
	case local == localFull && s.first(to):
		return errFull, false
	case local == localBusy && s.first(to):
		if s.closed == nil {
			s.closed = make(map[string]time.Time)
		}
		s.closed[domain] = now.Add(ClosedFor)
		return errBusy, true
	}
	return nil, false
}

// first reports whether a recipient has not come before.
func (s *script) first(to string) bool {
	if s.seen == nil {
		s.seen = make(map[string]bool)
	}
	before := s.seen[to]
	s.seen[to] = true
	return !before
}
