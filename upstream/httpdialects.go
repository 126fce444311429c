package upstream

import (
	"net/http"
	"time"
)

// httpDialect is how an upstream sends its limits, one header for each value.
// upstream/testdata/httplimits has a recorded response of each, and its source.
type httpDialect struct {
	name string
	// marks are headers that only this upstream sends: a response is in the dialect only if
	// it has one of them. Without marks, any response may be in it.
	marks  []string
	limits []httpLimitHeaders
}

// httpLimitHeaders names the headers of one limit.
type httpLimitHeaders struct {
	counts                  string
	countsIn                string // a header with a better name than counts; may be ""
	units, remaining, reset string
	window                  time.Duration // as documented; 0 if no window is documented
}

// httpDialects are the dialects, in the order in which HTTPLimits returns their limits.
// The dialects of one row share headers, and only the first that matches is read. All of them
// read values in the same way, so a wrong guess costs no more than a name, a window or a
// rare limit.
var httpDialects = [][]httpDialect{
	{azureDialect, groqDialect, openAIDialect},
	{anthropicDialect},
	{githubDialect},
}

// openAIDialect: https://developers.openai.com/api/docs/guides/rate-limits. The limits
// fill up evenly, and a reset is "the time until the rate limit resets to its initial
// state". The documentation lacks tokens_usage_based, which is sent.
var openAIDialect = httpDialect{
	name: "openai",
	limits: []httpLimitHeaders{
		openAILimit("requests", 0),
		openAILimit("tokens", 0),
		openAILimit("project-tokens", 0),
		openAILimit("tokens_usage_based", 0),
	},
}

// azureDialect: Microsoft has no table of these headers. They are described in
// https://github.com/openai/openai-dotnet/issues/838: a reset is a number of seconds,
// and -1 means that a limit does not apply.
var azureDialect = httpDialect{
	name:  "azure",
	marks: []string{"Apim-Request-Id", "X-Ms-Region"},
	limits: []httpLimitHeaders{
		openAILimit("requests", 0),
		openAILimit("tokens", 0),
	},
}

// groqDialect: https://console.groq.com/docs/rate-limits: the headers for requests
// "always" refer to requests per day, those for tokens to tokens per minute.
var groqDialect = httpDialect{
	name:  "groq",
	marks: []string{"X-Groq-Region"},
	limits: []httpLimitHeaders{
		openAILimit("requests", 24*time.Hour),
		openAILimit("tokens", time.Minute),
	},
}

func openAILimit(counts string, window time.Duration) httpLimitHeaders {
	return httpLimitHeaders{
		counts:    counts,
		units:     "X-Ratelimit-Limit-" + counts,
		remaining: "X-Ratelimit-Remaining-" + counts,
		reset:     "X-Ratelimit-Reset-" + counts,
		window:    window,
	}
}

// anthropicDialect: https://docs.anthropic.com/en/api/rate-limits, where a reset is
// "the time when the … rate limit will be fully replenished, provided in RFC 3339
// format". The headers of the priority tier are in
// https://platform.claude.com/docs/en/api/service-tiers.
var anthropicDialect = httpDialect{
	name: "anthropic",
	limits: []httpLimitHeaders{
		anthropicLimit("requests", "Anthropic-Ratelimit-"),
		anthropicLimit("tokens", "Anthropic-Ratelimit-"),
		anthropicLimit("input-tokens", "Anthropic-Ratelimit-"),
		anthropicLimit("output-tokens", "Anthropic-Ratelimit-"),
		anthropicLimit("priority-input-tokens", "Anthropic-"),
		anthropicLimit("priority-output-tokens", "Anthropic-"),
	},
}

func anthropicLimit(counts, prefix string) httpLimitHeaders {
	return httpLimitHeaders{
		counts:    counts,
		units:     prefix + counts + "-limit",
		remaining: prefix + counts + "-remaining",
		reset:     prefix + counts + "-reset",
	}
}

// githubDialect: https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api,
// where a reset is "the time at which the current rate limit window resets, in UTC
// epoch seconds".
var githubDialect = httpDialect{
	name:  "github",
	marks: []string{"X-Github-Request-Id", "X-Github-Media-Type", "X-Ratelimit-Resource"},
	limits: []httpLimitHeaders{{
		counts:    "requests",
		countsIn:  "X-Ratelimit-Resource",
		units:     "X-Ratelimit-Limit",
		remaining: "X-Ratelimit-Remaining",
		reset:     "X-Ratelimit-Reset",
	}},
}

// limitsOf reads the headers in the first dialect that they are in.
func limitsOf(dialects []httpDialect, header http.Header, at time.Time) []HTTPLimit {
	for _, dialect := range dialects {
		if dialect.isSpoken(header) {
			return dialect.read(header, at)
		}
	}
	return nil
}

func (d httpDialect) isSpoken(header http.Header) bool {
	for _, mark := range d.marks {
		if header.Get(mark) != "" {
			return true
		}
	}
	return len(d.marks) == 0
}

func (d httpDialect) read(header http.Header, at time.Time) []HTTPLimit {
	var limits []HTTPLimit
	for _, names := range d.limits {
		limit := HTTPLimit{
			Dialect:   d.name,
			Counts:    names.counts,
			Units:     unitsIn(header.Get(names.units)),
			Remaining: unitsIn(header.Get(names.remaining)),
			Reset:     resetIn(header.Get(names.reset), at),
			Window:    names.window,
		}
		if better := header.Get(names.countsIn); isName(better) {
			limit.Counts = better
		}
		if limit.says() {
			limits = append(limits, limit)
		}
	}
	return limits
}
