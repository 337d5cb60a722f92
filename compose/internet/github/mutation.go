package github

import "strings"

// An input is the argument of a mutation.
type input = map[string]any

// mutationFields are the mutations. Each takes its permission of the repository
// in which it works.
func (c *call) mutationFields() fields {
	all := fields{}
	for name, m := range map[string]func(input) (fields, error){
		"createIssue":          c.gqlCreateIssue,
		"updateIssue":          c.onIssue("id", "issue", c.gqlEdit),
		"closeIssue":           c.onIssue("issueId", "issue", func(i *issue, in input) error { return c.close(i, true, text(in, "stateReason")) }),
		"reopenIssue":          c.onIssue("issueId", "issue", func(i *issue, _ input) error { return c.close(i, false, "") }),
		"addComment":           c.gqlComment,
		"addLabelsToLabelable": c.onIssue("labelableId", "", c.gqlEdit),
		"createPullRequest":    c.gqlCreatePull,
		"updatePullRequest":    c.onPull("pull_requests=write", c.gqlEdit),
		"closePullRequest":     c.onPull("pull_requests=write", func(i *issue, _ input) error { return c.close(i, true, "") }),
		"reopenPullRequest":    c.onPull("pull_requests=write", func(i *issue, _ input) error { return c.close(i, false, "") }),
		"requestReviews":       c.onPull("pull_requests=write", func(*issue, input) error { return nil }),
		"mergePullRequest":     c.onPull("contents=write", c.gqlMerge),
		"enablePullRequestAutoMerge": c.onPull("contents=write", func(*issue, input) error {
			return unprocessable("Auto merge is not allowed for this repository")
		}),
		"markPullRequestReadyForReview": c.onPull("pull_requests=write", func(i *issue, _ input) error { i.pull.draft = false; return nil }),
		"convertPullRequestToDraft":     c.onPull("pull_requests=write", func(i *issue, _ input) error { i.pull.draft = true; return nil }),
		"addPullRequestReview":          c.gqlReview,
		"updateRepository":              c.gqlUpdateRepo,
		"createRef":                     c.gqlCreateRef,
		"updateRef":                     c.gqlMoveRef,
		"deleteRef":                     c.gqlMoveRef,
		"createCommitOnBranch":          c.gqlCommit,
	} {
		all[name] = fieldFunc(func(args map[string]any) (any, error) {
			in, _ := args["input"].(map[string]any)
			f, err := m(in)
			if err != nil {
				return nil, err
			}
			f["clientMutationId"] = in["clientMutationId"]
			return &node{strings.ToUpper(name[:1]) + name[1:] + "Payload", f}, nil
		})
	}
	return all
}

// repoOf finds the repository of an input by its node id, and judges the caller.
func (c *call) repoOf(id, what string) (*repository, error) {
	found, err := c.thing(id)
	if err != nil {
		return nil, err
	}
	r, ok := found.(*repository)
	if !ok {
		return nil, &apiError{status: 404, kind: "NOT_FOUND", message: "Could not resolve to Repository node with the global id of '" + id + "'."}
	}
	return r, c.caller.check(r, needs(what))
}

func (c *call) issueOf(id string) (*issue, error) {
	found, err := c.thing(id)
	if err != nil {
		return nil, err
	}
	i, ok := found.(*issue)
	if !ok {
		return nil, &apiError{status: 404, kind: "NOT_FOUND", message: "Could not resolve to Issue node with the global id of '" + id + "'."}
	}
	return i, nil
}

// onIssue is a mutation of an issue or pull request that the field id names.
func (c *call) onIssue(id, result string, do func(*issue, input) error) func(input) (fields, error) {
	return func(in input) (fields, error) {
		i, err := c.issueOf(text(in, id))
		if err != nil {
			return nil, err
		}
		if err := c.caller.check(i.repo, writeNeed(i)); err != nil {
			return nil, err
		}
		if err := do(i, in); err != nil {
			return nil, err
		}
		if result == "" {
			return fields{}, nil
		}
		return fields{result: c.issueOrPull(i)}, nil
	}
}

// onPull is a mutation of a pull request.
func (c *call) onPull(what string, do func(*issue, input) error) func(input) (fields, error) {
	return func(in input) (fields, error) {
		id := text(in, "pullRequestId")
		i, err := c.issueOf(id)
		if err != nil || i.pull == nil {
			return nil, &apiError{status: 404, kind: "NOT_FOUND", message: "Could not resolve to PullRequest node with the global id of '" + id + "'."}
		}
		if err := c.caller.check(i.repo, needs(what)); err != nil {
			return nil, err
		}
		if err := do(i, in); err != nil {
			return nil, err
		}
		return fields{"pullRequest": c.issueOrPull(i)}, nil
	}
}

// labelsOf are the names of the labels that an input gives by id.
func (c *call) labelsOf(in input) []string {
	var names []string
	ids, _ := in["labelIds"].([]any)
	for _, id := range ids {
		id, _ := id.(string)
		if found, err := c.thing(id); err == nil {
			if l, ok := found.(*label); ok {
				names = append(names, l.name)
			}
		}
	}
	return names
}

func (c *call) gqlCreateIssue(in input) (fields, error) {
	r, err := c.repoOf(text(in, "repositoryId"), "issues=write")
	switch {
	case err != nil:
		return nil, err
	case !r.hasIssues:
		return nil, unprocessable("Repository has issues disabled")
	case strings.TrimSpace(text(in, "title")) == "":
		return nil, unprocessable("Title can't be blank")
	}
	i := c.world.open(r, c.author(c.caller), text(in, "title"), text(in, "body"), nil, c.now())
	c.world.label(i, c.labelsOf(in))
	return fields{"issue": c.issueOrPull(i)}, nil
}

// gqlEdit takes over what an input gives of title, body, base and labels.
func (c *call) gqlEdit(i *issue, in input) error {
	for name, to := range map[string]*string{"title": &i.title, "body": &i.body} {
		if v, ok := in[name].(string); ok {
			*to = v
		}
	}
	if base := text(in, "baseRefName"); base != "" && i.pull != nil {
		if i.repo.git.branch(c.ctx, base) == "" {
			return unprocessable("Base ref must be a branch")
		}
		i.pull.base = base
	}
	c.world.label(i, c.labelsOf(in))
	i.updated = c.now()
	return nil
}

func (c *call) gqlComment(in input) (fields, error) {
	i, err := c.issueOf(text(in, "subjectId"))
	if err != nil {
		return nil, err
	}
	if err := c.caller.check(i.repo, writeNeed(i)); err != nil {
		return nil, err
	}
	if strings.TrimSpace(text(in, "body")) == "" {
		return nil, unprocessable("Body cannot be blank")
	}
	one := c.world.comment(i, c.author(c.caller), text(in, "body"), c.now())
	return fields{"commentEdge": &node{"IssueCommentEdge", fields{"node": c.commentNode(one)}}}, nil
}

func (c *call) gqlCreatePull(in input) (fields, error) {
	r, err := c.repoOf(text(in, "repositoryId"), "pull_requests=write")
	if err != nil {
		return nil, err
	}
	draft, _ := in["draft"].(bool)
	i, err := c.openPull(c.ctx, c.caller, r, pullRequest{
		Title: text(in, "title"), Body: text(in, "body"), Head: text(in, "headRefName"), Base: text(in, "baseRefName"), Draft: draft,
	})
	if err != nil {
		return nil, err
	}
	return fields{"pullRequest": c.issueOrPull(i)}, nil
}

func (c *call) gqlReview(in input) (fields, error) {
	var made *review
	_, err := c.onPull("pull_requests=write", func(i *issue, in input) (err error) {
		made, err = c.world.review(i, c.author(c.caller), text(in, "event"), text(in, "body"), c.now())
		return err
	})(in)
	if err != nil {
		return nil, err
	}
	return fields{"pullRequestReview": c.reviewNode(made)}, nil
}

func (c *call) gqlMerge(i *issue, in input) error {
	_, err := c.merge(i, mergeRequest{
		SHA: text(in, "expectedHeadOid"), Method: strings.ToLower(text(in, "mergeMethod")),
		Title: text(in, "commitHeadline"), Message: text(in, "commitBody"),
	})
	return err
}

func (c *call) gqlUpdateRepo(in input) (fields, error) {
	r, err := c.repoOf(text(in, "repositoryId"), "administration=write")
	if err != nil {
		return nil, err
	}
	if v, ok := in["description"].(string); ok {
		r.description = v
	}
	return fields{"repository": c.repository(r)}, nil
}
