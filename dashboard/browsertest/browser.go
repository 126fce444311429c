package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/chromedp/chromedp"
)

// Program finds a chromium in PATH.
func Program() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no chromium in PATH (Debian: apt-get install chromium)")
}

// Open starts a browser without a window, of this size, that ends with end. Tabs are made of
// the context by chromedp.NewContext.
func Open(ctx context.Context, width, height int) (browser context.Context, end func(), err error) {
	path, err := Program()
	if err != nil {
		return nil, nil, err
	}
	allocated, free := chromedp.NewExecAllocator(ctx,
		chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, // it loads only pages of the test
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.DisableGPU,
		chromedp.WindowSize(width, height), chromedp.Flag("disable-dev-shm-usage", true))
	browser, stop := chromedp.NewContext(allocated)
	if err := chromedp.Do(browser); err != nil {
		stop()
		free()
		return nil, nil, fmt.Errorf("browsertest: %s does not start: %w", path, err)
	}
	return browser, func() { stop(); free() }, nil
}
