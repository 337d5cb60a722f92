package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sallyport/cmd/sallyport/show"
	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/api"
)

const (
	commandAgent  = "command"
	maxPrompt     = 16 << 20 // bytes of standard input
	cancelTimeout = 15 * time.Second
)

const runLong = `Run starts an agent in a sandbox of its own, shows what it does, and prints the
result and the receipt: every host that was reached or refused.

The prompt is --prompt, the argument, or with "-" what comes on standard input.
After "--" stands a command of your own that runs in place of an agent: it gets the
prompt on its standard input, or without a prompt its own command line. Its exit code
is that of the program, 128 and the signal's number where a signal ended it. Ours are
then 124 where the time limit ended the command, 126 where it could not be started, 125
for all else that is not its end (wrong usage, a refused request, an executor that cannot
be reached, a limit other than time), and 130 where the run was cancelled.

Ctrl-C cancels the run and waits for its end; a second one leaves at once. A
connection that breaks is made again. A run whose caller has gone goes on; follow it
with "sallyport logs -f RUN".`

// runOptions are the flags of the command run.
type runOptions struct {
	prompt  string
	task    string
	policy  string
	request api.Config
	timeout time.Duration
	gitHub  gitHubOptions
	profile string
	secrets []string
	json    bool
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [PROMPT | -] [-- COMMAND [ARG]...]",
		Short: "Run an agent and show what it does",
		Long:  runLong,
		Example: `  sallyport run --model anthropic/claude-sonnet-4-6 "Write hello.py and run it."
  sallyport run --policy open --artifact 'report/*.md' - < prompt.txt
  sallyport run --repo acme/shop --profile read --branch fix-1 "Review this branch."
  sallyport run -- bash -c 'git ls-remote https://github.com/git/git | head -3'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := a.request(o, args, cmd.ArgsLenAtDash())
			if err != nil {
				return err
			}
			return a.runAgent(cmd.Context(), req, o.json)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.prompt, "prompt", "", "what the agent shall do")
	f.StringVarP(&o.request.Model, "model", "m", "", "provider/model; the executor's default if absent")
	f.StringVar(&o.request.Agent, "agent", "", "pi, agentic-pi or command")
	f.StringVarP(&o.policy, "policy", "p", "", "name of the policy")
	f.StringVar(&o.request.Egress, "egress", "", "the same, as the request has it")
	f.StringVar(&o.task, "task", "", "your name for what this run does, such as a workflow's phase; runs of one name can be compared")
	f.StringVar(&o.request.CWD, "cwd", "", "working directory, on the executor's host; a workspace of its own if absent")
	f.DurationVar(&o.timeout, "timeout", 0, "wall-clock limit, such as 10m")
	f.StringVar(&o.request.Variant, "variant", "", "reasoning effort: off, minimal, low, medium, high or xhigh")
	f.BoolVar(&o.request.WebSearch, "web-search", false, "give the agent its web search")
	f.StringArrayVar(&o.request.Artifacts, "artifact", nil, "files of the workspace to keep, as a glob; may be repeated")
	f.StringArrayVar(&o.request.SkillPaths, "skill", nil, "directory of a skill, on the executor's host; may be repeated")
	f.StringVar(&o.profile, "execution-profile", "", "name of the profile of profiles.yaml under which it runs")
	f.StringSliceVar(&o.secrets, "secret", nil, "name of a secret that the run is given; may be repeated")
	o.gitHub.flags(f)
	f.BoolVar(&o.json, "json", false, "print the result as JSON, and nothing else")
	return cmd
}

// request makes the request of flags and arguments; dash is how many of these
// stand before "--", or -1.
func (a *app) request(o runOptions, args []string, dash int) (api.Request, error) {
	words, argv := args, []string(nil)
	if dash >= 0 {
		words, argv = args[:dash], args[dash:]
	}
	req := api.Request{Config: o.request, Opts: api.Options{TaskID: o.task}}
	switch cfg := &req.Config; {
	case o.policy != "" && cfg.Egress != "" && o.policy != cfg.Egress:
		return req, usage("--policy %s and --egress %s contradict each other", o.policy, cfg.Egress)
	case len(words) > 1:
		return req, usage("%q is one argument too many: put the prompt in quotes", words[1])
	case len(words) == 1 && o.prompt != "":
		return req, usage("the prompt is given twice, by --prompt and as an argument")
	case dash >= 0 && len(argv) == 0:
		return req, usage(`after "--" the command is missing`)
	case len(argv) > 0 && cfg.Agent != "" && cfg.Agent != commandAgent:
		return req, usage(`a command after "--" goes with --agent command, not with %q`, cfg.Agent)
	case len(argv) == 0 && cfg.Agent == commandAgent:
		return req, usage(`--agent command needs the command: ... -- bash -c "..."`)
	case o.timeout < 0 || o.timeout > 0 && o.timeout < time.Millisecond:
		return req, usage("--timeout %v is no time to run in", o.timeout)
	case len(argv) > 0:
		cfg.Agent, cfg.Argv = commandAgent, argv
	}
	req.Config.Egress = cmp.Or(o.policy, req.Config.Egress)
	req.Config.TimeoutMS = o.timeout.Milliseconds()
	if cwd := req.Config.CWD; cwd != "" {
		var err error
		if req.Config.CWD, err = filepath.Abs(cwd); err != nil {
			return req, fmt.Errorf("find the working directory: %w", err)
		}
	}
	var err error
	if req.Opts.GithubAccess, err = o.gitHub.access(); err != nil {
		return req, err
	}
	if req.Opts.Security, err = o.security(); err != nil {
		return req, err
	}
	req.Prompt, err = a.prompt(o.prompt, words, argv)
	return req, err
}

// security is what the flags ask for in a security object, nil for nothing.
func (o runOptions) security() (json.RawMessage, error) {
	if o.profile == "" && len(o.secrets) == 0 {
		return nil, nil
	}
	return json.Marshal(struct {
		ExecutionProfile string   `json:"executionProfile,omitempty"`
		Secrets          []string `json:"secrets,omitempty"`
	}{o.profile, o.secrets})
}

// prompt finds the prompt: the flag, the argument, standard input, or for a
// command without any its own line.
func (a *app) prompt(flag string, words, argv []string) (string, error) {
	prompt := flag
	switch {
	case len(words) == 1 && words[0] == "-":
		data, err := io.ReadAll(io.LimitReader(a.stdin, maxPrompt+1))
		if err != nil {
			return "", fmt.Errorf("read the prompt from standard input: %w", err)
		}
		if len(data) > maxPrompt {
			return "", usage("the prompt on standard input is longer than %d bytes", maxPrompt)
		}
		prompt = string(data)
	case len(words) == 1:
		prompt = words[0]
	case prompt == "":
		prompt = strings.Join(argv, " ")
	}
	if strings.TrimSpace(prompt) == "" {
		return "", usage("the prompt is missing: give it as an argument, with --prompt, or with - on standard input")
	}
	return prompt, nil
}

// runAgent starts a run and sees it to its end. When ctx ends, it cancels the
// run and goes on to the result.
func (a *app) runAgent(ctx context.Context, req api.Request, asJSON bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	own := req.Config.Agent == commandAgent // its output is shown as it comes
	v := &show.View{Out: a.stderr}
	if own {
		v.Output = a.stdout
	}
	if asJSON {
		v.Out, v.Output = io.Discard, nil
	}
	cancel := &canceller{client: c, stderr: a.stderr}
	asked := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(asked)
		cancel.ask()
	})
	defer func() {
		if !stop() {
			<-asked
		}
		cancel.wait()
	}()
	for ev, err := range c.Execute(context.WithoutCancel(ctx), req) {
		if err != nil {
			return refused(err)
		}
		if ev.Execution != "" {
			cancel.name(ev.Execution)
		}
		v.Event(ev)
		if ev.Type == api.EventResult && ev.Result != nil {
			return a.finish(ev.Result, own, asJSON)
		}
	}
	return errors.New("the run's events ended without its result")
}

// refused makes the refusal of a request the program's end.
func refused(err error) error {
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		return err
	}
	later := ""
	if p.Retryable {
		later = " (it may be worth another try)"
	}
	return &exitError{code: exitUsage, err: fmt.Errorf("the executor refused the request: %w%s", p, later)}
}

// finish prints the result and turns it into the program's; own says that it is that
// of a command, whose output was shown.
func (a *app) finish(r *api.Result, own, asJSON bool) error {
	var err error
	if asJSON {
		err = a.printJSON(r, "  ")
	} else {
		if out := strings.TrimRight(r.Output, "\n"); out != "" && !own {
			fmt.Fprintln(a.stdout, terminal.Safe(out))
		}
		fmt.Fprintln(a.stdout)
		err = show.Result(a.stdout, r)
	}
	switch {
	case err != nil:
		return err
	case r.Success:
		return nil
	case r.Error != nil && r.Error.Code == api.CodeCancelled:
		return &exitError{code: exitCancelled}
	case own:
		return &exitError{code: commandExit(r), final: true}
	}
	return &exitError{code: exitFailed}
}

// commandExit is the exit code for a command that failed.
func commandExit(r *api.Result) int {
	switch {
	case r.Error != nil && r.Error.Code == api.CodeTimeout:
		return exitTimeout
	case r.ExitCode != nil && *r.ExitCode > 0 && *r.ExitCode <= 255: // whatever an executor says
		return *r.ExitCode
	case r.ExitCode == nil && r.Error != nil && r.Error.Code == api.CodeCommandFailed:
		return exitNotStarted
	}
	return exitOurs
}

// gitHubOptions are the flags of the command run that are about GitHub.
type gitHubOptions struct {
	repos   []string
	profile string
	branch  string
	base    string
	shallow bool
}

func (o *gitHubOptions) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.repos, "repo", nil, "repository on GitHub that the run may use, as OWNER/NAME; may be repeated, the first is what the run is about")
	f.StringVar(&o.profile, "profile", "", "what the run may do there: read, issues-write, review-write, repo-write, or one of the operator's")
	f.StringVar(&o.branch, "branch", "", "branch of the first --repo to check out before the agent starts")
	f.StringVar(&o.base, "base", "", "branch that --branch leaves, or starts from")
	f.BoolVar(&o.shallow, "shallow", false, "check out the newest commit only")
}

// access is what the flags ask for, or nil for nothing.
func (o gitHubOptions) access() (*api.GithubAccess, error) {
	switch {
	case len(o.repos) == 0 && o.profile == "" && o.branch == "" && o.base == "" && !o.shallow:
		return nil, nil
	case len(o.repos) == 0:
		return nil, usage("--repo OWNER/NAME is missing: it says which repository on GitHub is meant")
	case o.profile == "":
		return nil, usage("--profile is missing: it says what the run may do with %s", o.repos[0])
	case o.branch == "" && (o.base != "" || o.shallow):
		return nil, usage("--base and --shallow go with --branch, which says what to check out")
	}
	a := &api.GithubAccess{Profile: o.profile, PrePopulateBranch: o.branch, BaseBranch: o.base, Shallow: o.shallow}
	for i, repo := range o.repos {
		owner, name, ok := strings.Cut(repo, "/")
		switch {
		case !ok || owner == "" || name == "" || strings.Contains(name, "/"):
			return nil, usage("--repo %q is not OWNER/NAME", repo)
		case i == 0:
			a.Owner, a.Repo = owner, name
		case !strings.EqualFold(owner, a.Owner):
			return nil, usage("--repo %q has another owner than %q; a run's token is for one owner's repositories", repo, o.repos[0])
		}
		a.Repositories = append(a.Repositories, name)
	}
	return a, nil
}
