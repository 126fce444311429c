package worker_test

import (
	"fmt"
	"net/textproto"

	"github.com/asynq-throttle/asynq-throttle/upstream"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// A mailer's handler hands on that a domain's server asks to be left alone. What
// it refuses for good, and what concerns only one mailbox, is the handler's.
func ExampleAskedToWait_smtp() {
	deliver := func(reply *textproto.Error) error {
		err := fmt.Errorf("send mail 7: %w", reply) // as of smtp.SendMail
		if wait, asked := upstream.SMTPWait(err); asked {
			return worker.AskedToWait("domain", wait, err)
		}
		return err
	}
	fmt.Println(deliver(&textproto.Error{Code: 421, Msg: "4.7.0 Too many mails from your address"}))
	fmt.Println(deliver(&textproto.Error{Code: 452, Msg: "4.2.2 Mailbox full"}))
	// Output:
	// worker: the upstream asks to wait 5m0s, scope domain
	// send mail 7: 452 "4.2.2 Mailbox full"
}
