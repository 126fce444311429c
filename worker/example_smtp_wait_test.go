package worker_test

import (
	"fmt"
	"net/textproto"

	"github.com/asynq-throttle/asynq-throttle/worker"
)

// A mailer's handler hands on that a domain's server asks to be left alone. What
// it refuses for good, and what concerns only one mailbox, is the handler's.
func ExampleSMTPWait() {
	for _, reply := range []*textproto.Error{
		{Code: 421, Msg: "4.7.0 Too many mails from your address"},
		{Code: 452, Msg: "4.2.2 Mailbox full"},
		{Code: 550, Msg: "5.1.1 No such user"},
	} {
		err := fmt.Errorf("send mail 7: %w", reply) // as of smtp.SendMail
		if wait := worker.SMTPWait("domain", err); wait != nil {
			fmt.Println(reply.Code, wait)
			continue
		}
		fmt.Println(reply.Code, "is no wait")
	}
	// Output:
	// 421 worker: the upstream asks to wait 5m0s, scope domain
	// 452 is no wait
	// 550 is no wait
}
