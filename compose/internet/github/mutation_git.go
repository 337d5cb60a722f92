package github

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

func (c *call) gqlCreateRef(in input) (fields, error) {
	r, err := c.repoOf(text(in, "repositoryId"), "contents=write")
	if err != nil {
		return nil, err
	}
	c.repo = r
	name := text(in, "name")
	if r.git.resolve(c.ctx, name, "commit") != "" {
		return nil, unprocessable("A ref named %q already exists in the repository.", name)
	}
	if err := c.place(name, text(in, "oid"), ""); err != nil {
		return nil, err
	}
	return fields{"ref": c.refNode(r, name)}, nil
}

// gqlMoveRef updates a reference, or deletes it where there is no new object.
func (c *call) gqlMoveRef(in input) (fields, error) {
	id := text(in, "refId")
	for _, r := range c.world.repos {
		ref, ok := strings.CutPrefix(id, refID(r, ""))
		if !ok || c.caller.check(r, needs("metadata=read")) != nil {
			continue
		}
		if err := c.caller.check(r, needs("contents=write")); err != nil {
			return nil, err
		}
		c.repo = r
		old, to := r.git.resolve(c.ctx, ref, "commit"), text(in, "oid")
		if to == "" {
			return fields{}, r.git.setRef(c.ctx, ref, "", old)
		}
		if err := c.place(ref, to, old); err != nil {
			return nil, err
		}
		return fields{"ref": c.refNode(r, ref)}, nil
	}
	return nil, &apiError{status: 404, kind: "NOT_FOUND", message: "Could not resolve to a node with the global id of '" + id + "'"}
}

// A branchCommit is the input of createCommitOnBranch.
type branchCommit struct {
	Branch struct {
		Repo string `json:"repositoryNameWithOwner"`
		Name string `json:"branchName"`
	}
	Message struct{ Headline, Body string }
	Changes struct {
		Additions []struct{ Path, Contents string }
		Deletions []struct{ Path string }
	} `json:"fileChanges"`
	Head string `json:"expectedHeadOid"`
}

func (v branchCommit) changes() ([]change, error) {
	var list []change
	for _, f := range v.Changes.Deletions {
		list = append(list, change{path: f.Path})
	}
	for _, f := range v.Changes.Additions {
		content, err := base64.StdEncoding.DecodeString(f.Contents)
		if err != nil {
			return nil, unprocessable("%s: not valid Base64", f.Path)
		}
		list = append(list, change{f.Path, append([]byte{}, content...)})
	}
	return list, nil
}

func (c *call) gqlCommit(in input) (fields, error) {
	var v branchCommit
	if raw, err := json.Marshal(in); err != nil || json.Unmarshal(raw, &v) != nil {
		return nil, unprocessable("the input of createCommitOnBranch is not understood")
	}
	owner, name, _ := strings.Cut(v.Branch.Repo, "/")
	branch := strings.TrimPrefix(v.Branch.Name, "refs/heads/")
	r := c.world.repo(owner, name)
	if err := c.caller.check(r, needs("contents=write")); err != nil {
		return nil, err
	}
	changes, err := v.changes()
	if err != nil {
		return nil, err
	}
	for _, one := range changes {
		if isWorkflow(one.path) && !c.caller.token.Permissions.has("workflows", "write") {
			return nil, &apiError{status: 403, kind: "FORBIDDEN", message: workflowRefusal(one.path)}
		}
	}
	head := r.git.branch(c.ctx, branch)
	if head == "" || head != v.Head {
		return nil, &apiError{status: 409, kind: "STALE_DATA",
			message: fmt.Sprintf("Expected branch to point to %q but it did not. Pull and try again.", v.Head)}
	}
	c.repo = r
	commit, err := r.git.commit(c.ctx, head, signatureOf(c.author(c.caller)), v.Message.Headline+"\n\n"+v.Message.Body, changes)
	if err != nil {
		return nil, err
	}
	if err := c.moved(branch, commit, head); err != nil {
		return nil, err
	}
	made, err := c.commitNode(r, commit)
	return fields{"commit": made, "ref": c.refNode(r, "refs/heads/"+branch)}, err
}
