package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"sallyport/executor/api"
)

// MakeToken makes a token, whose text is in the answer alone.
func (c *Client) MakeToken(ctx context.Context, r api.TokenRequest) (api.Token, error) {
	var t api.Token
	err := c.ask(ctx, "/v1/tokens", r, &t)
	return t, err
}

// Tokens returns the tokens, the newest first.
func (c *Client) Tokens(ctx context.Context) (api.TokenList, error) {
	var list api.TokenList
	err := c.call(ctx, callTimeout, http.MethodGet, "/v1/tokens", &list)
	return list, err
}

// RevokeToken ends a token, and the calls under way with it.
func (c *Client) RevokeToken(ctx context.Context, id string) (api.Token, error) {
	var t api.Token
	if id == "" {
		return t, errors.New("the identifier of the token is empty")
	}
	err := c.call(ctx, callTimeout, http.MethodDelete, "/v1/tokens/"+url.PathEscape(id), &t)
	return t, err
}
