package api

import "time"

// TokenRequest is the body of POST /v1/tokens: a token for the caller's tenant, or for the
// one that the query names.
type TokenRequest struct {
	// Principal is who will make calls with the token.
	Principal string `json:"principal"`
	// Rights are some of run, read, approve and operate, none that the caller lacks.
	Rights []string `json:"rights"`
	// ExpiresAt is a time of RFC 3339, within a year; in 90 days, if empty.
	ExpiresAt string `json:"expiresAt,omitempty"`
}

// A Token is what is known of a token.
type Token struct {
	ID        string    `json:"tokenId"`
	Tenant    string    `json:"tenant"` // empty for the operator's
	Principal string    `json:"principal"`
	Rights    []string  `json:"rights"`
	CreatedAt time.Time `json:"createdAt"`
	CreatedBy string    `json:"createdBy"` // a principal
	ExpiresAt time.Time `json:"expiresAt"`
	// RevokedAt is there for one that was revoked, LastUsedAt, to the hour, for one that
	// was used.
	RevokedAt  time.Time `json:"revokedAt,omitzero"`
	LastUsedAt time.Time `json:"lastUsedAt,omitzero"`
	// Token is the text to show in calls: in the answer to POST alone.
	Token string `json:"token,omitempty"`
}

// TokenList is the answer to GET /v1/tokens, the newest first; those that have ended are
// listed for 90 days more.
type TokenList struct {
	Tokens []Token `json:"tokens"`
}
