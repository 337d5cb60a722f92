package policy

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"

	"sallyport/firewall"
)

// nameForm is what an operator may call something here.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

const nameFormText = "a name is of lower-case letters, digits, - and _, at most 63 of them"

const maxUSD = 1_000_000

// A form is what the names of a dimension look like.
type form struct {
	of    string
	check func(string) (string, error) // the canonical form
}

var forms = map[Dimension]form{
	ProfileNames: {"profiles", matching(nameForm, nameFormText)},
	Providers:    {"providers", matching(nameForm, nameFormText)},
	Templates:    {"templates", matching(nameForm, nameFormText)},
	Images:       {"images", matching(imageForm, imageFormText)},
	Agents:       {"agents", matching(nameForm, nameFormText)},
	Tiers:        {"tiers", matching(nameForm, nameFormText)},
	Egress:       {"policies of the allowlist", matching(nameForm, nameFormText)},
	GitHub:       {"GitHub profiles", matching(nameForm, nameFormText)},
	Repositories: {"repositories", repository},
	ProviderKeys: {"variables", matching(variableForm, variableFormText)},
	Secrets:      {"secrets", matching(nameForm, nameFormText)},
	Tasks:        {"task types", taskType},
	Gateways:     {"hosts", host},
}

var variableForm = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)

const variableFormText = "write the name of a variable, such as ANTHROPIC_API_KEY"

var imageForm = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9._/:@-]{0,254}$`)

const imageFormText = "an image is written as it is for the engine, such as registry.example/agent:1"

var repositoryForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,99}/(\*|[a-z0-9._-]{1,100})$`)

func matching(form *regexp.Regexp, text string) func(string) (string, error) {
	return func(s string) (string, error) {
		if !form.MatchString(s) {
			return "", errors.New(text)
		}
		return s, nil
	}
}

// repository folds the case, as GitHub does.
func repository(s string) (string, error) {
	lower := strings.ToLower(s)
	if !repositoryForm.MatchString(lower) {
		return "", errors.New("write OWNER/NAME, or OWNER/* for all of an owner's")
	}
	return lower, nil
}

func taskType(s string) (string, error) {
	switch kinds[s] {
	case "":
		return "", fmt.Errorf("there is no such type of task%s", suggest(s, approvable()))
	case onHost:
		return "", errors.New("it is control plane, which needs no approval: leave it out")
	}
	return s, nil
}

func host(s string) (string, error) {
	n, err := firewall.ParseName(s)
	return n.String(), err
}

var isoDuration = regexp.MustCompile(`^P(?:(\d{1,4})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,9})S)?)?$`)

// parseDuration reads 90m, or PT90M as workflows do (ISO 8601), of a second at least.
func parseDuration(s string) (Duration, error) {
	var d time.Duration
	if m := isoDuration.FindStringSubmatch(s); m != nil {
		for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
			n, _ := strconv.ParseInt("0"+m[i+1], 10, 64)
			d += time.Duration(n) * unit
		}
	} else if parsed, err := time.ParseDuration(s); err == nil {
		d = parsed
	}
	if d < time.Second || d > 366*24*time.Hour {
		return 0, fmt.Errorf("%s is not a time between a second and a year: write 90m or PT90M", quote(s))
	}
	return Duration(d), nil
}

var costForm = regexp.MustCompile(`^(\d{1,7})(?:\.(\d{1,6}))?$`)

// parseCost reads an amount of dollars.
func parseCost(s string) (Cost, error) {
	m := costForm.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%s is not an amount of US dollars such as 2.50", quote(s))
	}
	whole, _ := strconv.ParseInt(m[1], 10, 64)
	part, _ := strconv.ParseInt((m[2] + "000000")[:6], 10, 64)
	if whole > maxUSD || whole+part == 0 {
		return 0, fmt.Errorf("%s is not an amount between 0.000001 and %d US dollars", quote(s), maxUSD)
	}
	return Cost(whole*1e6 + part), nil
}

func quote(s string) string { return `"` + firewall.Escape(s, 80) + `"` }

func suggest(s string, known []string) string {
	best, word := 3, ""
	if len(s) > 64 {
		return ""
	}
	for _, k := range known {
		if d := levenshtein.ComputeDistance(s, k); d < best && d < len(k) {
			best, word = d, k
		}
	}
	if word == "" {
		return ""
	}
	return ", did you mean " + quote(word) + "?"
}
