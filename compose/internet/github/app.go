package github

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"
)

// The one App.
const (
	AppID     = 4242
	AppIDText = "4242"
	ClientID  = "Iv23liSallyportDemo0"
	Slug      = "sallyport-demo"
	botID     = 904242
)

// longestJWT is how far ahead the expiry of an App's token may lie.
const longestJWT = 10 * time.Minute

// appPermissions are what the App asks of those who install it: more than any
// run should have, so that what is refused was refused by its token.
var appPermissions = permissions{
	"actions": "write", "administration": "write", "contents": "write", "issues": "write",
	"metadata": "read", "pull_requests": "write", "statuses": "write", "workflows": "write",
}

// KeyPEM is the App's private key as GitHub hands it out: PKCS #1.
func (s *Server) KeyPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(s.key)})
}

// appKey reads what KeyPEM gave, or makes a key.
func appKey(text []byte) (*rsa.PrivateKey, error) {
	if text == nil {
		key, err := rsa.GenerateKey(rand.Reader, keyBits)
		if err != nil {
			return nil, fmt.Errorf("make the App's key: %w", err)
		}
		return key, nil
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("read the App's key: not PEM")
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the App's key: %w", err)
	}
	return key, nil
}

func jwtError(message string) error {
	return &apiError{status: 401, message: message, kind: "FORBIDDEN"}
}

// errUndecodable covers a broken token and a wrong signature alike.
var errUndecodable = jwtError("A JSON web token could not be decoded")

// A part of a JSON web token is base64url of JSON.
func decodePart(part string, into any) error {
	raw, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil || json.Unmarshal(raw, into) != nil {
		return errUndecodable
	}
	return nil
}

// checkJWT verifies what an App presents to prove itself (RFC 7519, RS256), in the
// order in which GitHub does: form, issuer, signature, times.
func checkJWT(raw string, key *rsa.PublicKey, now time.Time) error {
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return errUndecodable
	}
	var header struct {
		Alg string `json:"alg"`
	}
	var claims map[string]any
	if err := decodePart(parts[0], &header); err != nil {
		return err
	}
	if err := decodePart(parts[1], &claims); err != nil {
		return err
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || header.Alg != "RS256" || claims == nil {
		return errUndecodable
	}
	if err := checkIssuer(claims["iss"]); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) != nil {
		return errUndecodable
	}
	return checkTimes(claims, now)
}

// checkIssuer accepts the App's id, as a number or in digits, and its client id.
func checkIssuer(iss any) error {
	switch v := iss.(type) {
	case nil:
		return jwtError("Missing 'issuer' claim ('iss') in assertion")
	case float64:
		if v == AppID {
			return nil
		}
	case string:
		if v == AppIDText || v == ClientID {
			return nil
		}
	default:
		return jwtError("'Issuer' claim ('iss') must be an Integer")
	}
	return &apiError{status: 404, message: "Integration not found", kind: "NOT_FOUND"}
}

// checkTimes allows no clock that is ahead, not by a second.
func checkTimes(claims map[string]any, now time.Time) error {
	iat, ok := claims["iat"]
	if !ok {
		return jwtError("Missing 'issued at' claim ('iat') in assertion")
	}
	exp, ok := claims["exp"]
	if !ok {
		return jwtError("Missing 'expiration time' claim ('exp') in assertion")
	}
	issued, ok := iat.(float64)
	if !ok || issued != math.Trunc(issued) || int64(issued) > now.Unix() {
		return jwtError("'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued")
	}
	expires, ok := exp.(float64)
	if !ok || int64(expires) <= now.Unix() {
		return jwtError("'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires")
	}
	if int64(expires) > now.Add(longestJWT).Unix() {
		return jwtError("'Expiration time' claim ('exp') is too far in the future")
	}
	return nil
}

// requireApp lets an App pass that proves itself. s.mu must be held.
func (s *Server) requireApp(r *http.Request) error {
	scheme, raw, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return errUndecodable
	}
	return checkJWT(strings.TrimSpace(raw), &s.key.PublicKey, s.now())
}
