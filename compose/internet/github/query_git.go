package github

import (
	"fmt"
	"strings"
)

// qualified completes the short name of a branch or tag.
func (c *call) qualified(r *repository, name string) string {
	for _, prefix := range []string{"", "refs/heads/", "refs/tags/"} {
		if full := prefix + name; strings.HasPrefix(full, "refs/") && r.git.resolve(c.ctx, full, "commit") != "" {
			return full
		}
	}
	return ""
}

// refID has the reference in it: there is no table of references.
func refID(r *repository, ref string) string { return nodeID("REF", r.id) + "_" + ref }

func (c *call) refNode(r *repository, ref string) *node {
	sha := r.git.resolve(c.ctx, ref, "commit")
	if ref == "" || sha == "" {
		return nil
	}
	parts := strings.SplitN(ref, "/", 3)
	return &node{"Ref", fields{
		"id": refID(r, ref), "name": parts[2], "prefix": parts[0] + "/" + parts[1] + "/",
		"repository": fieldFunc(func(map[string]any) (any, error) { return c.repository(r), nil }),
		"target":     c.guarded(r, "contents=read", func(map[string]any) (any, error) { return c.commitNode(r, sha) }),
	}}
}

func (c *call) refs(r *repository, args map[string]any) (any, error) {
	prefix := text(args, "refPrefix")
	out, err := r.git.run(c.ctx, "", nil, "for-each-ref", "--format=%(refname)")
	if err != nil {
		return nil, err
	}
	var found []*node
	for _, ref := range strings.Fields(out) {
		if strings.HasPrefix(ref, prefix) && strings.Contains(ref, text(args, "query")) {
			found = append(found, c.refNode(r, ref))
		}
	}
	return connect("RefConnection", found)(args)
}

// gitObject finds an object by its name, or by an expression such as "main:README.md".
func (c *call) gitObject(r *repository, args map[string]any) (any, error) {
	name := text(args, "oid")
	if name == "" {
		name = text(args, "expression")
	}
	if sha := r.git.resolve(c.ctx, name, "commit"); sha != "" {
		return c.commitNode(r, sha)
	}
	sha, err := r.git.run(c.ctx, "", nil, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
	if err != nil {
		return nil, nil // nothing of that name
	}
	if content, err := r.git.blob(c.ctx, sha); err == nil {
		return &node{"Blob", fields{"id": "B_" + sha, "oid": sha, "abbreviatedOid": sha[:7], "text": string(content), "byteSize": len(content)}}, err
	}
	return nil, nil
}

func (c *call) commitNode(r *repository, sha string) (*node, error) {
	list, err := r.git.commits(c.ctx, "-1", sha, "--")
	if err != nil || len(list) != 1 {
		return nil, err
	}
	return commitNode(r, list[0]), nil
}

func commitNode(r *repository, one commitInfo) *node {
	person := func(s signature, when string) *node {
		return &node{"GitActor", fields{"name": s.name, "email": s.email, "date": when}}
	}
	return &node{"Commit", fields{
		"id": "C_" + one.sha, "oid": one.sha, "abbreviatedOid": one.sha[:7], "message": one.message, "messageHeadline": one.subject,
		"messageBody": one.body, "authoredDate": one.authored, "committedDate": one.committed,
		"url":    fmt.Sprintf("https://%s/%s/commit/%s", Host, r.fullName(), one.sha),
		"author": person(one.author, one.authored), "committer": person(one.committer, one.committed),
		"authors": connect("GitActorConnection", []*node{person(one.author, one.authored)}),
	}}
}
