package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"sallyport/executor/api"
)

// The decisions about an approval.
const (
	Approve  = "approve"
	Refuse   = "refuse"
	Withdraw = "withdraw"
)

// Approvals returns one page of the approvals, newest first: those in a state, if it is not
// empty, and those before the identifier before, if that is not.
func (c *Client) Approvals(ctx context.Context, state, before string) (api.ApprovalList, error) {
	values := url.Values{}
	for name, value := range map[string]string{"state": state, "before": before} {
		if value != "" {
			values.Set(name, value)
		}
	}
	var v api.ApprovalList
	err := c.call(ctx, callTimeout, http.MethodGet, "/v1/approvals?"+values.Encode(), &v)
	return v, err
}

// errNoApproval is an empty identifier, whose path would be that of the list.
var errNoApproval = errors.New("the identifier of the approval is empty")

// Approval returns an approval with its definition and its history.
func (c *Client) Approval(ctx context.Context, id string) (api.Approval, error) {
	var a api.Approval
	if id == "" {
		return a, errNoApproval
	}
	err := c.call(ctx, callTimeout, http.MethodGet, "/v1/approvals/"+url.PathEscape(id), &a)
	return a, err
}

// Decide makes one of the decisions about an approval.
func (c *Client) Decide(ctx context.Context, id, what string, d api.ApprovalDecision) (api.Approval, error) {
	var a api.Approval
	if id == "" {
		return a, errNoApproval
	}
	err := c.ask(ctx, "/v1/approvals/"+url.PathEscape(id)+"/"+what, d, &a)
	return a, err
}
