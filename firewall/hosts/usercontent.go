package hosts

// UserContent are suffixes under which whoever has an account gets a host or a
// bucket of his own: what a sandbox sends there, or fetches from there, is whoever's.
// The shipped allowlist has none of them. Nothing refuses them, since a name of
// one's own bucket is a good entry; an entry for a whole suffix draws a warning.
//
// The public suffix list has most of them and more, and is asked beside this one
// (golang.org/x/net/publicsuffix): this list adds those that are not on it, and says
// what the best known are. githubusercontent.com is left out: there the path says
// whose a file is, and no sandbox can write there without a token.
var UserContent = newList([]Row{
	{"github.io", "web sites of GitHub's users", "https://docs.github.com/en/pages/getting-started-with-github-pages/what-is-github-pages"},
	{"app.github.dev", "ports of GitHub codespaces", "https://docs.github.com/en/codespaces/developing-in-a-codespace/forwarding-ports-in-your-codespace"},
	{"gitlab.io", "web sites of GitLab's users", "https://docs.gitlab.com/user/project/pages/"},
	{"codeberg.page", "web sites of Codeberg's users", "https://docs.codeberg.org/codeberg-pages/"},
	{"readthedocs.io", "documentation of anybody's project", "https://docs.readthedocs.com/platform/stable/"},
	{"pages.dev", "web sites of Cloudflare's customers", "https://developers.cloudflare.com/pages/"},
	{"workers.dev", "programs of Cloudflare's customers", "https://developers.cloudflare.com/workers/configuration/routing/workers-dev/"},
	{"r2.dev", "object storage of Cloudflare's customers", "https://developers.cloudflare.com/r2/buckets/public-buckets/"},
	{"r2.cloudflarestorage.com", "object storage of Cloudflare's customers", "https://developers.cloudflare.com/r2/api/s3/api/"},
	{"netlify.app", "web sites of Netlify's customers", "https://docs.netlify.com/"},
	{"vercel.app", "web sites of Vercel's customers", "https://vercel.com/docs/deployments/generated-urls"},
	{"herokuapp.com", "programs of Heroku's customers", "https://devcenter.heroku.com/articles/custom-domains"},
	{"fly.dev", "programs of Fly's customers", "https://fly.io/docs/networking/custom-domain/"},
	{"onrender.com", "programs of Render's customers", "https://render.com/docs/web-services"},
	{"deno.dev", "programs of Deno Deploy's customers", "https://docs.deno.com/deploy/"},
	{"surge.sh", "web sites of anybody", "https://surge.sh/help/"},
	{"hf.space", "programs of Hugging Face's users", "https://huggingface.co/docs/hub/spaces-overview"},
	{"web.app", "web sites of Firebase's customers", "https://firebase.google.com/docs/hosting"},
	{"firebaseapp.com", "web sites of Firebase's customers", "https://firebase.google.com/docs/hosting"},
	{"firebaseio.com", "databases of Firebase's customers", "https://firebase.google.com/docs/database/rest/start"},
	{"firebasestorage.googleapis.com", "storage of Firebase's customers", "https://firebase.google.com/docs/storage"},
	{"storage.googleapis.com", "object storage of Google's customers", "https://cloud.google.com/storage/docs/request-endpoints"},
	{"storage.cloud.google.com", "object storage of Google's customers", "https://cloud.google.com/storage/docs/request-endpoints"},
	{"appspot.com", "programs of Google's customers", "https://cloud.google.com/appengine/docs/standard/how-requests-are-routed"},
	{"run.app", "programs of Google's customers", "https://cloud.google.com/run/docs/triggering/https-request"},
	{"cloudfunctions.net", "programs of Google's customers", "https://cloud.google.com/functions/docs/calling/http"},
	{"s3.amazonaws.com", "object storage of Amazon's customers", "https://docs.aws.amazon.com/AmazonS3/latest/userguide/VirtualHosting.html"},
	{"cloudfront.net", "web sites of Amazon's customers", "https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/GettingStarted.html"},
	{"on.aws", "programs of Amazon's customers", "https://docs.aws.amazon.com/lambda/latest/dg/urls-configuration.html"},
	{"amplifyapp.com", "web sites of Amazon's customers", "https://docs.aws.amazon.com/amplify/latest/userguide/custom-domains.html"},
	{"blob.core.windows.net", "object storage of Azure's customers", "https://learn.microsoft.com/en-us/azure/storage/common/storage-account-overview"},
	{"file.core.windows.net", "file storage of Azure's customers", "https://learn.microsoft.com/en-us/azure/storage/common/storage-account-overview"},
	{"queue.core.windows.net", "queues of Azure's customers", "https://learn.microsoft.com/en-us/azure/storage/common/storage-account-overview"},
	{"table.core.windows.net", "tables of Azure's customers", "https://learn.microsoft.com/en-us/azure/storage/common/storage-account-overview"},
	{"web.core.windows.net", "web sites of Azure's customers", "https://learn.microsoft.com/en-us/azure/storage/common/storage-account-overview"},
	{"azurewebsites.net", "programs of Azure's customers", "https://learn.microsoft.com/en-us/azure/app-service/overview"},
	{"azurestaticapps.net", "web sites of Azure's customers", "https://learn.microsoft.com/en-us/azure/static-web-apps/overview"},
	{"digitaloceanspaces.com", "object storage of DigitalOcean's customers", "https://docs.digitalocean.com/products/spaces/"},
	{"ondigitalocean.app", "programs of DigitalOcean's customers", "https://docs.digitalocean.com/products/app-platform/"},
	{"linodeobjects.com", "object storage of Akamai's customers", "https://techdocs.akamai.com/cloud-computing/docs/object-storage"},
	{"backblazeb2.com", "object storage of Backblaze's customers", "https://www.backblaze.com/docs/cloud-storage"},
	{"wasabisys.com", "object storage of Wasabi's customers", "https://docs.wasabi.com/"},
	{"aliyuncs.com", "object storage of Alibaba's customers", "https://www.alibabacloud.com/help/en/oss/user-guide/regions-and-endpoints"},
	{"myqcloud.com", "object storage of Tencent's customers", "https://www.tencentcloud.com/document/product/436/6224"},
	{"supabase.co", "databases of Supabase's customers", "https://supabase.com/docs/guides/api"},
	{"trycloudflare.com", "tunnels to anybody's machine", "https://developers.cloudflare.com/cloudflare-one/connections/connect-networks/do-more-with-tunnels/trycloudflare/"},
	{"ngrok.io", "tunnels to anybody's machine", "https://ngrok.com/docs/"},
	{"ngrok.app", "tunnels to anybody's machine", "https://ngrok.com/docs/"},
	{"ngrok.dev", "tunnels to anybody's machine", "https://ngrok.com/docs/"},
	{"ngrok-free.app", "tunnels to anybody's machine", "https://ngrok.com/docs/"},
	{"devtunnels.ms", "tunnels to anybody's machine", "https://learn.microsoft.com/en-us/azure/developer/dev-tunnels/overview"},
	{"loca.lt", "tunnels to anybody's machine", "https://github.com/localtunnel/localtunnel"},
})
