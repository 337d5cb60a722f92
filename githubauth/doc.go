// Package githubauth turns a GitHub App's private key into tokens that can do what
// one run needs, on the repositories it needs, and no more.
//
// What a run may do is a profile: named permissions, of which four are built in
// and others come from the operator's file ([scope.Load]). No profile is wider than that
// file's ceiling. [scope.Profiles.NewGrant] judges what a run asks for; [App.Mint] asks
// GitHub for exactly that, compares the answer with it and refuses, after revoking
// the token, an answer that is wider or narrower. [App.Revoke] ends a token.
//
// Guarantees: a request without repositories or without permissions, either of
// which would mean "all", is never sent. The private key stays in a [Key], which
// only signs. No error, log line or printed value of this package holds a token, a
// JWT or a key; [Token.Value] is the one way to a token.
//
// Limits: a token that GitHub made and whose answer was lost lives until its hour is
// over, though nobody has it. A [Static] token is what its owner made it: it is
// neither narrowed nor revoked.
//
//	key, err := githubauth.LoadKey("/run/secrets/app.pem")
//	app, err := githubauth.NewApp(githubauth.Config{AppID: 7, Signer: key})
//	grant, err := profiles.NewGrant("read", "acme", []string{"shop"})
//	token, err := app.Mint(ctx, grant)
//	defer app.Revoke(context.WithoutCancel(ctx), token.Value())
package githubauth
