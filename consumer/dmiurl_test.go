package consumer

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testdata/dmi-urls.json holds what java.net.URI (JDK 17) and NCMP's two
// conditions say: "" is accepted.
func TestDMIURLsAgreeWithJava(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/dmi-urls.json")
	require.NoError(t, err)
	var urls [][2]string
	require.NoError(t, json.Unmarshal(b, &urls))
	require.NotEmpty(t, urls)
	for _, u := range urls {
		assert.Equal(t, u[1], checkDMIURL(u[0]), "%q", u[0])
	}
}

func TestUserInfoIsHidden(t *testing.T) {
	t.Parallel()
	require.Equal(t, "http://…@dmi_1:80/a@b", withoutUserInfo("http://user:secret@dmi_1:80/a@b"))
	require.Equal(t, "http://dmi/a@b", withoutUserInfo("http://dmi/a@b"))
	require.Equal(t, "no url", withoutUserInfo("no url"))
}
