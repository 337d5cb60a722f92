package anthropic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A Script is a scripted model: it says the next turn of a conversation. It has
// no memory of its own.
type Script func(Conversation) Turn

// A Conversation is what a script may look at.
type Conversation struct {
	System string // what the agent tells the model beforehand
	Prompt string // what the user said last
	Turn   int    // how many answers the model has given since
	// Results are the answers to the tool uses of the last turn, in order.
	Results []ToolResult
	Tools   []Tool
}

// A ToolResult is what a tool printed.
type ToolResult struct {
	Text    string
	IsError bool
}

// A Turn is one answer of the model.
type Turn struct {
	Thinking string // sent only where the request allows reasoning
	Text     string
	Tools    []ToolUse
	// Stop overrides the stop reason, which is tool_use where there are tools and end_turn otherwise.
	Stop string
	// Quiet is a silence before the answer in which only pings are sent.
	Quiet time.Duration
	// Error, if set, is answered instead of all that.
	Error *Error
}

// A ToolUse is the model's wish to run a tool.
type ToolUse struct {
	Name  string
	Input map[string]any
}

// conversation sums up a checked request: what has happened since the last
// message in which the user says something rather than hands back tool results.
func (r *Request) conversation() Conversation {
	c := Conversation{System: r.System.text(), Tools: r.Tools}
	for _, m := range r.Messages {
		switch m.Role {
		case "assistant":
			c.Turn++
			continue
		case "system":
			continue
		}
		c.Results = nil
		for _, b := range m.Content {
			if b.Type == "tool_result" {
				c.Results = append(c.Results, ToolResult{Text: b.Content.text(), IsError: b.IsError})
			}
		}
		if c.Results == nil {
			c.Prompt, c.Turn = m.Content.text(), 0
		}
	}
	return c
}

// fit returns the use with every field that the tool demands, or false where the
// request offers no such tool or the tool does not take the input. A demanded field
// that may be null, as strict tools have them for what is optional, becomes null.
func (c Conversation) fit(use ToolUse) (ToolUse, bool) {
	i := slices.IndexFunc(c.Tools, func(t Tool) bool { return t.Name == use.Name })
	if i < 0 {
		return use, false
	}
	schema := c.Tools[i].InputSchema
	input := map[string]any{}
	for field, value := range use.Input {
		if _, ok := schema.Properties[field]; !ok {
			return use, false
		}
		input[field] = value
	}
	for _, field := range schema.Required {
		if _, ok := input[field]; ok {
			continue
		}
		if !schema.Properties[field].nullable() {
			return use, false
		}
		input[field] = nil
	}
	return ToolUse{Name: use.Name, Input: input}, true
}

// use is a turn that runs a tool, or says that it cannot.
func (c Conversation) use(text string, use ToolUse) Turn {
	fitted, ok := c.fit(use)
	if !ok {
		return Turn{Text: fmt.Sprintf("I have no tool %s that takes what I want to give it.", use.Name)}
	}
	return Turn{Text: text, Tools: []ToolUse{fitted}}
}

// named finds "script:NAME" or "script:NAME=ARGUMENT" in a prompt.
var named = regexp.MustCompile(`\bscript:([a-z]+)(?:=(\S+))?`)

// Select returns the script that a prompt asks for, nil where it names none:
//
//	script:plain      one text and no tool
//	script:shell      the rest of the prompt, after this line, as a shell command; then its output as the answer
//	script:system=WORD the lines of the system prompt that hold the word
//	script:think      reasoning, then a text
//	script:slow=30s   a stream that says nothing but pings for that long (10 s by default), then a text
//	script:endless    a shell tool, for ever
//	script:overloaded status 529 each time
//	script:quota      status 429 each time
//	script:credit     status 400, no credit left
//	script:truncated  an answer cut at the token limit
//	script:empty      an answer without any content
//	script:refusal    stop reason refusal
func Select(prompt string) Script {
	m := named.FindStringSubmatchIndex(prompt)
	if m == nil {
		return nil
	}
	name, argument := prompt[m[2]:m[3]], ""
	if m[4] >= 0 {
		argument = prompt[m[4]:m[5]]
	}
	switch name {
	case "shell":
		_, command, _ := strings.Cut(prompt[m[1]:], "\n")
		return shell(strings.TrimSpace(command))
	case "slow":
		return slow(argument)
	case "system":
		return system(argument)
	}
	return scripts[name]
}

var scripts = map[string]Script{
	"plain": Plain,
	"think": func(Conversation) Turn {
		return Turn{Thinking: "The user wants a short answer.", Text: "Thought about it."}
	},
	"endless": func(c Conversation) Turn {
		return c.use(fmt.Sprintf("Step %d.", c.Turn+1), bash("sleep 1; date"))
	},
	"overloaded": fails(Error{Status: 529, Type: "overloaded_error", Message: "Overloaded"}),
	"quota": fails(Error{Status: http.StatusTooManyRequests, Type: "rate_limit_error",
		Message: "This request would exceed your organization's rate limit.", RetryAfter: 1}),
	"credit": fails(Error{Status: http.StatusBadRequest, Type: "invalid_request_error",
		Message: "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}),
	"truncated": func(Conversation) Turn { return Turn{Text: "This answer stops in the mid", Stop: "max_tokens"} },
	"empty":     func(Conversation) Turn { return Turn{} },
	"refusal":   func(Conversation) Turn { return Turn{Text: "I will not.", Stop: "refusal"} },
}

// Plain answers with one text and uses no tool.
func Plain(Conversation) Turn {
	return Turn{Text: "Hello from the scripted model."}
}

func fails(e Error) Script {
	return func(Conversation) Turn { return Turn{Error: &e} }
}

func slow(argument string) Script {
	d, err := time.ParseDuration(argument)
	if err != nil || d < 0 {
		d = 10 * time.Second
	}
	return func(Conversation) Turn { return Turn{Quiet: min(d, time.Hour), Text: "Sorry for the wait."} }
}

func system(word string) Script {
	return func(c Conversation) Turn {
		lines := slices.DeleteFunc(strings.Split(c.System, "\n"), func(line string) bool { return !strings.Contains(line, word) })
		return Turn{Text: "I was told:\n" + strings.Join(lines, "\n")}
	}
}

func bash(command string) ToolUse {
	return ToolUse{Name: "bash", Input: map[string]any{"command": command}}
}

func shell(command string) Script {
	return func(c Conversation) Turn {
		if c.Turn == 0 {
			return c.use("", bash(command))
		}
		return Turn{Text: c.output()}
	}
}

// output is what the last tools printed.
func (c Conversation) output() string {
	var b strings.Builder
	for _, r := range c.Results {
		b.WriteString(r.Text)
	}
	return b.String()
}

// Demo is the script of the demonstration: look around with the shell, fetch
// a page of the site that the policy allows and one that it refuses, write what
// happened into REPORT.md, and sum up. Both are host names.
func Demo(site, refused string) Script {
	look := fmt.Sprintf(`uname -sm; id -un
echo "== https://%[1]s"; curl -sS -m 10 https://%[1]s/ || echo "exit $?"
echo "== https://%[2]s"; curl -sS -m 10 https://%[2]s/ || echo "exit $?"`, site, refused)
	return func(c Conversation) Turn {
		switch c.Turn {
		case 0:
			t := c.use("I will look around with the shell and try two sites.", bash(look))
			t.Thinking = "First see where I am and what I can reach."
			return t
		case 1:
			report := "# Report\n\nTask: " + firstLine(c.Prompt) + "\n\n```\n" + strings.TrimSpace(c.output()) + "\n```\n"
			return c.use("Now I write down what I saw.", ToolUse{Name: "write",
				Input: map[string]any{"path": "REPORT.md", "content": report}})
		}
		return Turn{Text: fmt.Sprintf("Done. I tried %s and %s; what came of it is in REPORT.md.", site, refused)}
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

func mustJSON(v any) json.RawMessage {
	p, err := json.Marshal(v)
	if err != nil {
		panic("anthropic: a script's input does not marshal: " + err.Error())
	}
	return p
}
