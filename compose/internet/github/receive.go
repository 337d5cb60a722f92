package github

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// workflowDir holds the files that take a permission of their own.
const workflowDir = ".github/workflows"

func workflowRefusal(path string) string {
	return fmt.Sprintf("refusing to allow a GitHub App to create or update workflow `%s` without `workflows` permission", path)
}

func isWorkflow(path string) bool { return strings.HasPrefix(path, workflowDir+"/") }

// A command is one reference that a push wants to move.
type command struct{ old, new, ref string }

// parsePush reads the commands of a request to git-receive-pack and finds its pack
// (gitprotocol-pack(5), "Reference Update Request and Packfile Transfer").
func parsePush(body []byte) (commands []command, capabilities string, pack []byte, err error) {
	for {
		line, rest, err := pktLine(body)
		if err != nil {
			return nil, "", nil, err
		}
		body = rest
		if line == nil {
			return commands, capabilities, body, nil
		}
		text := strings.TrimSuffix(string(line), "\n")
		if strings.HasPrefix(text, "shallow ") {
			continue
		}
		if len(commands) == 0 {
			text, capabilities, _ = strings.Cut(text, "\x00")
		}
		f := strings.SplitN(text, " ", 3)
		if len(f) != 3 || !isObject(f[0]) || !isObject(f[1]) || !strings.HasPrefix(f[2], "refs/") {
			return nil, "", nil, fmt.Errorf("not a command of a push: %q", text)
		}
		commands = append(commands, command{f[0], f[1], f[2]})
	}
}

// pktLine cuts one line off; nil is the flush packet.
func pktLine(b []byte) (line, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errors.New("the request breaks off")
	}
	n, err := strconv.ParseUint(string(b[:4]), 16, 16)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("not a length: %q", b[:4])
	case n == 0:
		return nil, b[4:], nil
	case n < 4 || int(n) > len(b):
		return nil, nil, fmt.Errorf("a length of %d with %d bytes left", n, len(b))
	}
	return b[4:n], b[n:], nil
}

// isObject says whether the text is the name of an object, SHA-1 in hexadecimal.
func isObject(s string) bool {
	return len(s) == 40 && strings.Trim(s, "0123456789abcdef") == ""
}

func isZero(sha string) bool { return strings.Trim(sha, "0") == "" }

// receive looks through a push before git takes it: the pack is unpacked beside the
// repository, and each reference's new commits are searched for workflow files. If
// one is not to be taken, the answer that says so is returned, and nothing was changed.
func receive(ctx context.Context, g gitDir, body []byte, workflows bool) ([]byte, error) {
	if workflows || bytes.Equal(body, []byte("0000")) { // a probe whether one may push
		return nil, nil
	}
	commands, capabilities, pack, err := parsePush(body)
	if err != nil {
		return nil, err
	}
	quarantine, err := os.MkdirTemp(string(g), "quarantine-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(quarantine)
	env := []string{"GIT_OBJECT_DIRECTORY=" + quarantine, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + filepath.Join(string(g), "objects")}
	if bytes.HasPrefix(pack, []byte("PACK")) {
		if _, err := g.run(ctx, string(pack), env, "unpack-objects", "-q"); err != nil {
			return nil, err
		}
	}
	refused := map[string]string{}
	for _, c := range commands {
		path, err := g.newWorkflow(ctx, env, c.new)
		if err != nil {
			return nil, err
		}
		if path != "" {
			refused[c.ref] = workflowRefusal(path)
		}
	}
	if len(refused) == 0 {
		return nil, nil
	}
	return report(commands, refused, capabilities), nil
}

// newWorkflow finds a workflow file that commits which are not on any reference
// yet create, change or remove; "" if there is none.
func (g gitDir) newWorkflow(ctx context.Context, env []string, tip string) (string, error) {
	if isZero(tip) {
		return "", nil
	}
	out, err := g.run(ctx, "", env, "log", "--format=", "--name-only", "--no-renames", "-m", "-z", "--full-history",
		tip, "--not", "--all", "--", workflowDir)
	if err != nil {
		return "", err
	}
	for path := range strings.SplitSeq(out, "\x00") {
		if path = strings.TrimSpace(path); path != "" {
			return path, nil
		}
	}
	return "", nil
}

// report is a receive-pack's answer that takes no reference (gitprotocol-pack(5), "Report Status").
func report(commands []command, refused map[string]string, capabilities string) []byte {
	var status bytes.Buffer
	pkt := func(b *bytes.Buffer, text string) { fmt.Fprintf(b, "%04x%s", len(text)+4, text) }
	pkt(&status, "unpack ok\n")
	for _, c := range commands {
		reason := refused[c.ref]
		if reason == "" {
			reason = "not taken, as another reference of this push was refused"
		}
		pkt(&status, "ng "+c.ref+" "+reason+"\n")
	}
	status.WriteString("0000")
	if !strings.Contains(capabilities, "side-band-64k") {
		return status.Bytes()
	}
	var band bytes.Buffer
	for rest := status.Bytes(); len(rest) > 0; {
		n := min(len(rest), 65515) // a side band's largest payload
		pkt(&band, "\x01"+string(rest[:n]))
		rest = rest[n:]
	}
	band.WriteString("0000")
	return band.Bytes()
}
