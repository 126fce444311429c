package upstream_test

import (
	"fmt"
	"net/textproto"

	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// What a server says about itself is a wait. What it refuses for good, and what concerns only one
// mailbox, is none.
func ExampleSMTPWait() {
	for _, reply := range []*textproto.Error{
		{Code: 421, Msg: "4.7.0 Too many mails from your address"},
		{Code: 452, Msg: "4.2.2 Mailbox full"},
		{Code: 550, Msg: "5.1.1 No such user"},
	} {
		err := fmt.Errorf("send mail 7: %w", reply) // as of smtp.SendMail
		wait, asked := upstream.SMTPWait(err)
		fmt.Println(reply.Code, asked, wait)
	}
	// Output:
	// 421 true 5m0s
	// 452 false 0s
	// 550 false 0s
}
