package firewall

// quote and show make a part of the file fit for a message.
func quote(s string) string { return `"` + show(s) + `"` }
func show(s string) string  { return Escape(s, 80) }

// suggest gives `, did you mean "x"?` for the known word that is nearest to s.
func suggest(s string, known []string) string {
	best, word := 3, ""
	for _, k := range known {
		if d := distance(s, k); d < best && d < len(k) {
			best, word = d, k
		}
	}
	if word == "" {
		return ""
	}
	return ", did you mean " + quote(word) + "?"
}

// distance is how many letters must be changed, put in or left out to make b of
// a; long words are not compared.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
