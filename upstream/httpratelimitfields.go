package upstream

import (
	"net/http"
	"time"
)

// ietfLimits reads the fields of draft-ietf-httpapi-ratelimit-headers
// (https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11) and
// of its older versions. Servers send each of these three forms:
//
//	RateLimit: "hourly";r=50;t=30             since version 08
//	RateLimit-Policy: "hourly";q=100;w=3600
//
//	RateLimit: limit=100, remaining=50, reset=30             version 07
//	RateLimit-Policy: 100;w=3600
//
//	RateLimit-Limit: 100, 100;w=3600          before version 07; the policy may stand in
//	RateLimit-Remaining: 50                   RateLimit-Policy as in version 07
//	RateLimit-Reset: 30
//
// The result has the limits with remaining units first, each completed by its policy, then
// the other policies.
func ietfLimits(header http.Header, at time.Time) []HTTPLimit {
	policies := policiesIn(header.Values("RateLimit-Policy"))
	limits := statedLimits(header.Values("RateLimit"), at)
	if len(limits) == 0 {
		limits = olderLimit(header, at)
		if len(policies) == 0 {
			policies = policiesIn(header.Values("RateLimit-Limit"))
		}
	}
	limits = joinPolicies(limits, policies)
	for i := range limits {
		if limits[i].Counts == "" {
			limits[i].Counts = "requests" // the draft's default
		}
	}
	return limits
}

// policiesIn reads policies, each as a limit with unknown remaining units. In the older
// versions a policy has its units where the draft now has its name, and must have a window:
// a number without one is no policy but the limit itself.
func policiesIn(lines []string) []HTTPLimit {
	var policies []HTTPLimit
	for _, m := range fieldMembersIn(lines) {
		policy := HTTPLimit{Dialect: "ietf", Units: unitsIn(m.value), Remaining: -1, Window: windowIn(m.params["w"])}
		if name, ok := m.name(); ok {
			policy.Counts, policy.Units = name, unitsIn(m.params["q"])
		} else if policy.Window == 0 {
			continue
		}
		if m.key == "" && policy.Units >= 0 {
			policies = append(policies, policy)
		}
	}
	return policies
}

// statedLimits reads the field RateLimit: a list, or the dictionary of version 07.
func statedLimits(lines []string, at time.Time) []HTTPLimit {
	var limits []HTTPLimit
	stated := make(map[string]string)
	for _, m := range fieldMembersIn(lines) {
		if m.key != "" {
			stated[m.key] = m.value
			continue
		}
		name, ok := m.name()
		remaining := unitsIn(m.params["r"])
		if ok && remaining >= 0 { // the draft requires both
			limits = append(limits, HTTPLimit{
				Dialect: "ietf", Counts: name, Units: -1, Remaining: remaining, Reset: resetIn(m.params["t"], at),
			})
		}
	}
	if len(limits) > 0 {
		return limits
	}
	return unnamedLimit(stated["limit"], stated["remaining"], stated["reset"], at)
}

// olderLimit reads RateLimit-Limit, -Remaining and -Reset. Policies may follow a value;
// policiesIn reads them.
func olderLimit(header http.Header, at time.Time) []HTTPLimit {
	first := func(field string) string {
		for _, m := range fieldMembersIn(header.Values(field)) {
			return m.value
		}
		return ""
	}
	return unnamedLimit(first("RateLimit-Limit"), first("RateLimit-Remaining"), first("RateLimit-Reset"), at)
}

// unnamedLimit returns the one limit of the older versions, or none if no value is valid.
func unnamedLimit(units, remaining, reset string, at time.Time) []HTTPLimit {
	limit := HTTPLimit{Dialect: "ietf", Units: unitsIn(units), Remaining: unitsIn(remaining), Reset: resetIn(reset, at)}
	if !limit.says() {
		return nil
	}
	return []HTTPLimit{limit}
}

// joinPolicies completes each limit by its policy, and appends the policies without a limit.
func joinPolicies(limits, policies []HTTPLimit) []HTTPLimit {
	joined := make([]bool, len(policies))
	for i := range limits {
		for j, policy := range policies {
			if isPolicyOf(policy, limits[i]) {
				limits[i].Units, limits[i].Window = policy.Units, policy.Window
				joined[j] = true
				break
			}
		}
	}
	for j, policy := range policies {
		if !joined[j] {
			limits = append(limits, policy)
		}
	}
	return limits
}

// isPolicyOf reports whether a policy and a limit belong together: by their name, or by
// their units if neither has a name.
func isPolicyOf(policy, limit HTTPLimit) bool {
	return policy.Counts == limit.Counts && (limit.Counts != "" || policy.Units == limit.Units)
}
