package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"sallyport/entrypoint/wire"
	"sallyport/executor/api"
)

// The stop reasons of the original's contract that an agent's own end can have.
const (
	stopSuccess   = "success"
	stopUnknown   = "unknown" // an empty answer
	stopFatal     = "error_fatal"
	stopTool      = "error_tool" // ended while the model waited for a tool
	stopTruncated = "error_truncated"
	stopAgent     = "error_agent"
	stopAborted   = "error_aborted"
	stopSandbox   = "error_sandbox"
	stopQuota     = "error_quota"
)

// verdict judges a run by how the process ended and what the last message was.
func (s *stream) verdict(exit wire.Exit) (string, *api.Error) {
	fail := func(stop, message string) (string, *api.Error) {
		return stop, &api.Error{Code: api.CodeAgentFailed, Message: message, Details: map[string]any{"stopReason": stop}}
	}
	switch {
	case s.fatal != "":
		return fail(stopFatal, s.agent+": "+s.fatal)
	case s.sandbox != "" && !clean(exit):
		return fail(stopSandbox, s.agent+": "+s.sandbox)
	case !clean(exit):
		stop, message := badExit(s.agent, exit)
		if s.last != nil && s.last.StopReason == "error" {
			message += "; before that: " + readProviderError(s.last.ErrorMessage).message
		}
		stop, err := fail(stop, message)
		err.Details["exitCode"] = exit.Status()
		return stop, err
	case s.last == nil:
		return fail(stopUnknown, s.agent+" ended without asking its model anything")
	}
	switch s.last.StopReason {
	case "error":
		return s.providerFailed()
	case "aborted":
		return fail(stopAborted, s.agent+" was aborted")
	case "length":
		return fail(stopTruncated, "the model's answer was cut at its limit of tokens")
	case "toolUse", "deferred":
		return fail(stopTool, s.agent+" ended in the middle of a turn, before the model could go on")
	}
	if strings.TrimSpace(s.text) == "" {
		stop, err := fail(stopUnknown, "the model's last answer was empty")
		err.Retryable = true
		return stop, err
	}
	return stopSuccess, nil
}

func clean(exit wire.Exit) bool { return exit.Code == 0 && exit.Signal == "" }

// badExit puts an end that is not clean into words.
func badExit(name string, exit wire.Exit) (stop, message string) {
	stop = fmt.Sprintf("error_exit_%d", exit.Status())
	switch {
	case exit.Signal != "":
		return stop, fmt.Sprintf("%s was ended by signal %s", name, exit.Signal)
	case exit.Code < 0:
		return stopSandbox, marked(fmt.Sprintf("%s could not be started: %s", name, exit.Error))
	}
	return stop, fmt.Sprintf("%s ended with exit code %d", name, exit.Code)
}

// providerFailed is the verdict on a run whose last answer was its provider's error.
func (s *stream) providerFailed() (string, *api.Error) {
	e := readProviderError(s.last.ErrorMessage)
	provider := s.last.Provider
	if provider == "" {
		provider = "the provider"
	}
	stop := stopAgent
	if e.quota {
		stop = stopQuota
	}
	details := map[string]any{"stopReason": stop, "provider": provider, "model": s.last.Model}
	if e.status != 0 {
		details["status"] = e.status
	}
	return stop, &api.Error{Code: api.CodeAgentFailed, Message: provider + ": " + e.message, Retryable: e.retryable, Details: details}
}

// A providerError is what an agent passes on of a provider's refusal: only text,
// in which the first word is the HTTP status if there was an answer.
type providerError struct {
	message   string
	status    int // 0 where unknown
	quota     bool
	retryable bool
}

var (
	statusFirst = regexp.MustCompile(`^([45]\d\d)\b[: ]*`)
	quotaWords  = regexp.MustCompile(`(?i)rate.?limit|quota|credit balance|insufficient.?(funds|credit)|billing|usage.limit|payment required`)
	// Words of those that no repetition helps.
	emptyWords     = regexp.MustCompile(`(?i)insufficient|credit|billing|payment required`)
	transientWords = regexp.MustCompile(`(?i)overloaded|connection error|timed? ?out|terminated|fetch failed|socket|ECONN|EAI_AGAIN|ended before|ended without`)
)

func readProviderError(text string) providerError {
	e := providerError{message: strings.TrimSpace(text)}
	if m := statusFirst.FindStringSubmatch(e.message); m != nil {
		e.status, _ = strconv.Atoi(m[1])
		e.message = strings.TrimSpace(fmt.Sprintf("%d %s", e.status, inner(e.message[len(m[0]):])))
	}
	if e.message == "" {
		e.message = "it failed without a message"
	}
	e.message, _ = cut(e.message, 4<<10)
	e.quota = e.status == http.StatusTooManyRequests || e.status == http.StatusPaymentRequired || quotaWords.MatchString(e.message)
	switch {
	case e.quota:
		e.retryable = !emptyWords.MatchString(e.message)
	case e.status != 0:
		e.retryable = e.status >= 500 || e.status == http.StatusRequestTimeout || e.status == http.StatusConflict
	default:
		e.retryable = transientWords.MatchString(e.message)
	}
	return e
}

// inner takes type and message out of a provider's JSON body; anything else stays as it is.
func inner(body string) string {
	var e struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(body), &e) != nil || e.Error.Message == "" {
		return body
	}
	if e.Error.Type == "" {
		return e.Error.Message
	}
	return e.Error.Type + ": " + e.Error.Message
}
