package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"sallyport/executor/statedir"
	"sallyport/executor/task"
	"sallyport/executor/tokens"
)

// firstSweep bounds what a start waits for GitHub: what is not done by then is done
// while runs are served.
const firstSweep = 5 * time.Second

// openTokens opens the keeper of the tokens of runs and revokes those that an earlier
// executor left; it returns what came of them by run. Without access to GitHub there
// is no keeper, and the log tells of tokens that live on.
func openTokens(state string, g *GitHubAccess, log *slog.Logger) (*tokens.Keeper, map[string][]tokens.Ending, error) {
	dir := statedir.Tokens(state)
	var issuer tokens.Issuer
	var origin tokens.Origin
	if g != nil {
		issuer, origin = g.Issuer, tokens.Origin{Source: g.Source, API: g.APIURL}
	} else if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	keeper, err := tokens.Open(dir, issuer, origin, log)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), firstSweep)
	defer cancel()
	ended := keeper.First(ctx)
	if g == nil {
		return nil, ended, keeper.Close()
	}
	return keeper, ended, nil
}

// closeTokens is called once nothing runs any more.
func closeTokens(keeper *tokens.Keeper) error {
	if keeper == nil {
		return nil
	}
	return keeper.Close()
}

// RevokeLeft revokes the tokens that an earlier executor left in its state directory,
// for one that cannot start: GitHub may be there where an engine is not. New does the
// same by itself. With no access to GitHub, which is nil then, it tells of them.
func RevokeLeft(state string, g *GitHubAccess, log *slog.Logger) error {
	lock, err := statedir.Lock(state)
	if err != nil {
		return fmt.Errorf("open the state directory: %w", err)
	}
	keeper, _, err := openTokens(state, g, log)
	return errors.Join(err, closeTokens(keeper), lock.Close())
}

// gitHub gives the runner what a run's access to GitHub takes.
func (c *Config) gitHub(keeper *tokens.Keeper) *task.GitHub {
	if keeper == nil {
		return nil
	}
	return &task.GitHub{Tokens: keeper, Host: c.GitHub.Host, APIURL: c.GitHub.APIURL, Source: c.GitHub.Source, Key: c.GitHub.Key}
}
