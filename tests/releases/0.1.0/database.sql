BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num TEXT NOT NULL, 
	PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v2');
CREATE TABLE assets (
	id INTEGER NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	version VARCHAR(255) NOT NULL, 
	spec JSON NOT NULL, 
	labels JSON NOT NULL, 
	created_at FLOAT NOT NULL, 
	deleted_at FLOAT, 
	PRIMARY KEY (id)
);
INSERT INTO "assets" VALUES(1,'data','words','1','{"type": "uri_file", "path": "azureml://datastores/default/paths/uploads/6cfe5928128b8b33919261e0168845160ba5320c1cd149e086f5f837d4ea1d6c/files/words.txt"}','[]',1.79575082532050943374e+09,NULL);
INSERT INTO "assets" VALUES(2,'model','birds','1','{"path": "outputs/model.txt", "type": "custom_model", "files": 1, "size": 17, "digest": "0d91dc1990124b57bf742fed31c892306b09fa18e9c46b9eddc1533f9ef3bbeb", "job": "plain", "lineage": {"experiment": "birds", "status": "Completed", "attempt": 1, "command": "python train.py ${{inputs.words}} --lr ${{inputs.lr}}", "code": "f7d5d87290c89fd19c294f1e5824de9a4f1a52956b863305d6a2396ca8cbfc1e", "environment": {"name": "current"}, "inputs": {"words": "azureml:words:1", "lr": 0.1}}}','["best"]',1.79575083364640784256e+09,NULL);
INSERT INTO "assets" VALUES(3,'environment','train','1','{"pip": ["packaging==24.2"]}','["prod"]',1.79575083413859748837e+09,NULL);
INSERT INTO "assets" VALUES(4,'component','say','1','{"inputs": {"word": {"type": "string", "default": "hello"}}, "command": "echo ${{inputs.word}}", "type": "command"}','[]',1.79575083487328147893e+09,NULL);
CREATE TABLE computes (
	name VARCHAR(63) NOT NULL, 
	spec JSON NOT NULL, 
	created_at FLOAT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "computes" VALUES('local','{"name": "local", "type": "local", "description": "this machine; each node has its own address", "options": {"max_ranks": "64"}}',1.7957508375234129429e+09);
CREATE TABLE deleted_jobs (
	name VARCHAR(255) NOT NULL, 
	deleted_at FLOAT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE event_blocks (
	job_id INTEGER NOT NULL, 
	last INTEGER NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY (job_id, last), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "event_blocks" VALUES(1,19,X'789CCD545D8FDA3010FC2F7E7683D75F6BF3DCBEB63F00A193210E4484244A0215AAEEBF771D501B737755FB5681509077666766BDD96C80037A834638690B6DB5775271B61F629862C9381DF3F6D234F71FC17FB0B23EC471626B860121C620844765DC4EA35116C5AE84E82B816AEF8D89662F8C76BAAA5425415A0C60A49216B4AD80BD6EF9462EDB5B5012A5E46CBCECCEF5F4818053BC51F7BE09755B00E36C88D5E27F225519A9446B8DE3EC189BA6BB138A3B1B105B5F976C6DAC3609A833207A67AC4B0D4279CB809280A12C87388ED41A2416823E92C41CBB399BEB999EFB6E98E87C4386B5D97256B7531CAAB08F549094B07D7FA173A0CADB74EC5AB62639613AD2F16A3AF7ABD03443684FE32751402156D7D85E57BBBA5D3DAA39BBC661AC138EA902A0C0D433EC4F8106C4D649E82B892FCF81ADABD08C31393499438D5ACB3C1A781B8D4B40BB042228FA66C9C09F92511F24F39F8482B937A44B48A11CBA776E5F2A77CB722785034B598C53187EDDD8074A511AB35AF20ADB84F519165069F904156FA16286825862BDF3B4AB9AC031B6EFAD09914E29D44B4F097C3FA69D9997258C299C398844BAD87F9A95D516C1F0B9F34B6CCBDF7E806B22DD7725710AEA5A1FDAD0DC79389B2B5F02CD372733A0F4DC452EBB8090289C7BC0B2C04C72FD90C83E7FFBFA85249FE92ED1F492FE994B3D71799D96B41C68FF9FD8EC7D5EA0338FDA7987FEAD47419F7FF6A81D0DD1CE5D4CA60B8CF3CA661EC5DF7BB44B2EA50CA0486FE5A61BEBF6F0DEB4FBCBD0776322A8EAB61E8F8B51DF7BCCB498D322BDB839DBDD62961A3E527359B156F4844F398B3C679F213C088405BD58D06F7F028864CC05');
INSERT INTO "event_blocks" VALUES(2,32,X'789C8D544D8BDB3010FD2B4667D5D1B7ECDC0ADD4329F4507A288425C8911C9BF80BCB491A96FDEF1DC9A16B6FB3D0048222CDBC796FE649BB1DA398EA5C6A4932A6D35CB24CB30CA3C3E8CCE42CC2708CBB73D3CC3F04BF205B1F9D9FD016154A08EA0E42BBC27057E6CA1C88B059968BCC16A4D485D4D649CE95B29AE892339E172C33B9952535B2D0E8F519EF185BD5CFA9169A62E4CF455B4F1F3038B91B942F4DDD389B5284D1E8CAE546C4E56FB8594AB896B96680EB5CF708D24F201730CE03C05DAB801F718DEF3BB40D611154AC4029C934151855AE69FA1995CC90142087DAA2ADCC481E33E52A53324968C4B7B75522834463EDE8BC070A145A42E0CB804BD5C7A65F5A580FFD38C1F98E6A26C533467537B9B13487A020304187E10CE7A077B84D55500074CC54C1F1666A878D699AD17427FF89A434259B8BEB2E9BA2EE36F7688C2E6EF475C8433CA534D5A1A6399C0C4CFEDE0D206F5B83B6A569BC8B0AD54AA162426B85D1B17FD0EE18AF97F19451A5340E7318FF4EFDDE130E3D89744131798EB9D93297699549C1710CDABBCEBEE5132C20F9D05BE80C04F8FAD899665680518CDC1BE8EA1A4CE54AC42AF9B20A97545125EE696F05646077F709FAF1F9FBB7FDD3AFAF3F9FBE40CB5A9822B40CF603B384247D9774C00556EE770D32936B3D5549A097F06DD2F4DE6F1392F2779F30CFC70A66C77F2001A3098EA167E8EABA29D42EC7BE85DAB1E8B51FAD07E4B928B8E0EF9AA472B1FE870CD8AD02BFCD17043C178CF882FABEDD9FEAA6813F04C313E14FFB7274C0590BA0A2E15121B00FDE7BB4EDABF6BECD240B17952BBEF0EE7F79F6354C8C93D5C414155485C70CC4D4DDF1D1BD1FCEE3D0FB30A2B2EE6A5F2D2EFD6A98119D2ED115CB75CEC1E1763475F7CEB26AF63867AB0CA519A330C4E2E656D13A443FFF01FE829062');
INSERT INTO "event_blocks" VALUES(3,35,X'789C6DCD4D0A02310C40E1BB645D24699236F12A4317A53F833028E8B892B9BB822B411EBCEDB72C2C81B26B56B4E8271154E11CA0DD47DD4787409FAECF6DFB0EC30BFA651D8F1DCED0920A320BD628314D6A1C5B4D4483D4D0AD36447633EA91B01A13F9A8E6DD27B7AE53231C252CAC3FBE0B61D200EBED0F7D94F2062D202F09');
INSERT INTO "event_blocks" VALUES(4,57,X'789C7592DD8E9B301085DFC5D72EF1BF71AEB7B7DD0788A2C8C12658210661925554F5DD3B36513744A99010C273BE3973C6BB1D57986A23B524353395A44213A1316A266F67EF10A6F0C46BDF2F2F827F23174E3ECD688B1A2505E15C10CB04532D6D386BACA2D453591353DB86106EEA9A3A4689AD39A5C6DBDA38D3F2C6C95632F4678F775CAFFA0BC58D6618A5EBF112E6FF3838FB3BB44FDE4E4D77201545184DBE5DFFCA6C4156EC9A694E33DBFBF80E9B66181928D711805F5DEE51C8360D116D735981B215540BA521AFCEF7FDB040C942A4401C83435B69382942FE2C545C3151E8EEBED231D059E7269F1218A04C57041E064EBAA1C47EBBC0F7384C339CEF983184EC310A71F6536B9BEC3F1B41CD7885739876BCCF5DF60F6EECDCC1F166BE8C1BDBF7938DE7F403B2AAC8E6E6E36D730C71F3A8C6E8E6A714B20EF18AD24AE79EB6395BD8FD230B30EF2E166D5BDB275F0614AB0105374CC188A7E14DD8A5DE3CD76B4A34571CE7354CFF16FF08854328C52F8C4CF6592CC98BD8184A71293AF8E8BEF5040B103783836808D0C329DA7E1901A35279B010EB1A56D7A234A1AB268C49FDD0ACDCC9ECEE714DD0C7E7AF9F10D605F60761E53B5448DFB786C33E253300832DF5430AF1F4EE368ED7691C5206B42186D43D5DC5A547C1AA672CC4CD740D3B77930DF1C5A45A4297FA45C1250723C7BB5F55EB5CBDFF0BCC6D2536');
INSERT INTO "event_blocks" VALUES(5,60,X'789C7593DBAE9B301045FFC5CF2EF1FD92E7D3D7F603A228728C0928C4204C524555FFBD63139DC2512A240BE1D96BF65C381CB8C1545BA92531CC5652514D05C3C84FC1CDA14698C213EF7DBF1C04FF4675770969467B74365C12EE883F2B6D8290D62BC682D18D92C4D6B5A59E362C78EE1B4502D18619E189B684CAC649EA08FA73C4076E37F90D65D24A8CD2FD7CEBE6FF38B88627A44FC14DBE3DD18A228CA6D06C3F65B6A05BB665C268608710DF61D30C2503E53E02F0579B7314B24B4344FB1C56A0720D559432C10C466DE8FB61A192054901397635DA4BCB4551AA8DD208ABB82C09EAE746C940E9EA7A0A298107CA7445E06160A61D4AE71F37781F876986FB036360E1885117E73035CEE712B215E4C73BDCC330C7E7DCE612C08F9B5BB8DECDB771E7FA7E72F19ABE918A5664F708F1B13B7771F78AC6E811A6D4651DE215A595CE399DBF3A18FFAB1D60BEBE39B46F5C9F422951AF4BD484C28A288C2EC39B7E97F8CDF669C9A561601826317DCEFED5140E4D297EA16472CC62C9D7622B84B130DD1C730AB1FE27275880D60F35748600BCBB44D72F156054224F0EBABA6529AB6949223E93709802B38628F1926DFCC9ECEFB52BE8E3E78FEFD0AE1B4C10DA9517A9B0E49AC58434047E3FE4FB2175F1F26E25C7FB340E29039A2E76A95DEDE392A360ED1ACBE1501A2CD693EBE217936A69BB225F14147E15747E864DB0CEC1C7BF817026D3');
INSERT INTO "event_blocks" VALUES(6,64,X'789C8B8E3633D63134B734353735B03036D4B33030B1343536D3514A2E4A4D2C494D51D23104C2BCD29C1C0861A053AD9492999E5A5CA264A5A4541BAB136D6682A2DFD8C2DC1468A4527A3E16ADB5B1B100A1981EC3');
INSERT INTO "event_blocks" VALUES(7,75,X'789C7552DBAEDA3010FC173FBB617D77783E7D6D3F002164E20D58E4A62420A18A7FEFC6A09E13742A4B5164CFCCCECEEE6E670D17AE34CE8057A2F0AE54CA6ACEAA11C38C917141A7BB36CDF303FC0F8BE984D3CCB62C7A0D5E402DAC4451A22AA33D565E69E9EDD182ADAD322E28A3055600958E587B6FA53602D1610D923DF67C67EDD7FA2528ADA4E56CBA1EDB34FFC7C105EF547E48031EDA70C14230CE46ACDFEEB2BA5BA95B0B505277676C9AFEA90C4F5941B2438A6C6BC14066FA15D319A9B45BCA84785F312531438C234E131910D215404792A5739F63BAB5F43FF4E34CEF3BE984F27BCE5237E358870A09B05861D570A57749C8FB7CEE3BB6253F613ED3F3666E874D689A317497E90714A280CD0DBBDBE698BACD0BCDD90DC7292D3CA60A210AB7D40CD525D0ACD87631FA20F3B10D6C5B8766C2DC62B96AD13BB0925A3CF5DF64BEE01D7CE26501E094D39E463587F1DFA05EA1280A25FBA596619FC9E28DEC94A7492CA00376F1930F5C13B9EA234503A49E4E5D689E2D7096918740B1AEC58C2F55AE22D7554AE75FA4953DB3D8C330E5BC3E7EFFFA4969B534404A8B2EF2E638B5521200C618CEE21852F7A6665FF1E8378650527176BCE30AED5E68B3461BE54C496BD0F453EA4EDF6DFD701D877E5A0CD6A94BD3392FFDD71E1EFBFD5FE5000F61');
INSERT INTO "event_blocks" VALUES(8,87,X'789C7552D1AEE22010FD179ED93A4029E0F3EEEBEE0718635040899536A59A981BFFFD4ED1ECCACDDD34691B38E7CC9933B3D9284599325249D0823720B46142517298BC9DBD2394E193AE7DFF7C01FD202E1E7D9EC99A18668D07D61A8354A94250CE76FBA0140F46B652B79C316994B02D0B5683C673295400A782E4C13AF2D8D28DD2557D295A2D29C9D7FD25CEFF3170F677AC3EC6D1EFAED9378C5032F9501F156953491B2EB1374A4EBEEF87A72E3C45198A8ED19175079D5E981A6AA6E11D934B15EBEE159323D33A37F99CB13EE3AA017C383A3A0D25A3DB05FFC7619AF17EC33B03B0A524A6D94FC11E3C02162BE4305EF19E23F23E9F8644D6E8C7CE27BC5ECD977165FB7EB2E99C7F40C31A58DD7CBAADF631AD5E684A6E7ECA71E111D130D6A8A5A63D9C2D0E8AAC17A30F34EF2E96AC83EDB32F2DB2F7161928E8309BE3F04DE005CE2B3867C0DB16E734DBE9EF945E9908CCA4D8C58E615BC8A2260B23B4A605B4F3C9FDE3036D917C181C2603A81E8FC9F6CF0E2829C89DC5546B31C95E436BEB2A46C362B12A5094E462D0DB5C02FBF9E7F72F8CEB8213C4B8F0A0AC0EEEE0BB9600FCA26337D998BEA875AF80BA2F0C260C32F6775FA1D50BAD6A746B14EF700FFA21C774FC6EE9C7EB340E793118628AF95496FEBD87C776FB094F150EA6');
INSERT INTO "event_blocks" VALUES(9,100,X'789C7553DBAEDB2010FC179EA9B35C0C26CFED6BFB0151748481C4280EB68C1329AAF2EF5DE3A88D8F4E85642198999D1DD6878301CAB4A9750D8DE09552821B4ADC14EC1C3CA10C57BAF5FDFA01FA9BF8780E79267B22A1710E1CAB5BE1A595D238085C092699774A3535A8DAB5DE9FA06D6BCB1D1322040BCBDEF04649499E477A306C535D375A3794E45B7B8DF37F0C5CC203AB77D1FB902A462899C2E9FDA0C8F27759CDB8014D4917FA7E582561D563A837464FF68A7156886243140D00F0A584F58F0D9323D37A3F859CB138E3BA025C1CED744389E77EC5FD384C33DE1F38138D3C5212D31CA6937501018B15E2C61BDE6385F1317743227BF463E70EAF77F375DCD9BE9F6CBAE46F50B10A76F790EEBB36A6DD0B4DC93D4C392E3C222AC62ABDD4B4EE62F18DC87E31FA44F3FE6AC9FE64FB1C4A8B72D3A2E442AA9A92F3F045D8055F6FF0B85592E11BCD76FAFB42AF50048652FC62CB702C64F5896C4A9C88F908C9FFA30395C87583C76400C5E339D97EED809282FCB098EA564BD74695227A53A461D8947AD136FEEAC55FB0B904F6FDD7CF1F18D7155F10E3C28375729A4F5A460B4AFC6463FA24A65EF1982D8103C7516B1F6103D62B98C1E66FD306E198BDEB871CD3F9AB691F6FD338E4C5DE29A698BB32EFEF1D3C8FC73F173E0CC5');
CREATE TABLE events (
	id INTEGER NOT NULL, 
	job_id INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	launch INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	node INTEGER, 
	rank INTEGER, 
	seq INTEGER NOT NULL, 
	data JSON NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "events" VALUES(20,1,1.79575082740199851987e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(33,2,1.79575082884092855455e+09,'finished',1,1,NULL,NULL,0,'{"status": "Failed", "exit_code": 3, "error": {"reason": "RANK_EXITED", "blame": "user", "message": "rank 0 on node 0 exited with code 3: loss: 0.3333333333333333", "hint": "see its log: allranks job logs failed --rank 0", "node": 0, "rank": 0, "cause": "UNKNOWN", "explanation": "the cause is unknown", "evidence": null, "retryable": null, "exception": null}}');
INSERT INTO "events" VALUES(58,4,1.79575083030136799806e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(61,5,1.79575083040569210049e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(62,3,1.79575083042849969862e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(76,7,1.79575083201559209823e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(88,8,1.79575083213512921333e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(89,6,1.79575083214894461636e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(101,9,1.79575083279839587215e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(102,10,1.79575083804802608489e+09,'created',1,1,NULL,NULL,0,'{"digest": "a99ab455ef5c83dc7b3d7eca2016660a5d719241d1e7746023a72eb919fa62f9"}');
INSERT INTO "events" VALUES(103,10,1.7957508380544378757e+09,'submitted',1,1,NULL,NULL,0,'{"key": "running.1", "ref": "running.1"}');
INSERT INTO "events" VALUES(104,10,1.79575083808148193353e+09,'hello',1,1,0,NULL,1,'{"pid": 6471}');
INSERT INTO "events" VALUES(105,10,1.79575083812055444724e+09,'ready',1,1,0,NULL,2,'{"address": "127.0.0.2", "host": "vm", "ports": [16293], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}');
INSERT INTO "events" VALUES(106,10,1.79575083812792348856e+09,'go',1,1,NULL,NULL,0,'{}');
INSERT INTO "events" VALUES(107,10,1.79575083816785883907e+09,'started',1,1,0,NULL,3,'{"ranks": [0]}');
INSERT INTO "events" VALUES(108,10,1.79575083855021333696e+09,'seen',1,1,NULL,NULL,0,'{"state": "up", "why": "", "reason": null}');
CREATE TABLE feeds (
	job_id INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	node INTEGER NOT NULL, 
	name VARCHAR(20) NOT NULL, 
	taken BIGINT NOT NULL, 
	PRIMARY KEY (job_id, attempt, node, name), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "feeds" VALUES(1,1,1,'resources',356);
INSERT INTO "feeds" VALUES(1,1,0,'metrics',484);
INSERT INTO "feeds" VALUES(1,1,0,'resources',358);
INSERT INTO "feeds" VALUES(2,1,0,'metrics',484);
INSERT INTO "feeds" VALUES(2,1,0,'resources',357);
INSERT INTO "feeds" VALUES(4,1,0,'metrics',458);
INSERT INTO "feeds" VALUES(5,1,0,'metrics',458);
INSERT INTO "feeds" VALUES(5,1,0,'resources',352);
INSERT INTO "feeds" VALUES(10,1,0,'resources',1081);
CREATE TABLE job_annotations (
	job_id INTEGER NOT NULL, 
	display_name TEXT NOT NULL, 
	tags JSON NOT NULL, 
	archived_at FLOAT, 
	parameters JSON, 
	PRIMARY KEY (job_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "job_annotations" VALUES(1,'A plain job','{"team": "vision"}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(2,'failed','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(3,'search','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(4,'search_0','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(5,'search_1','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(6,'pipe','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(7,'make','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(8,'use','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(9,'hidden','{}',1.79575083325651383399e+09,'{}');
INSERT INTO "job_annotations" VALUES(10,'running','{}',NULL,'{}');
CREATE TABLE jobs (
	id INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	experiment VARCHAR(255) NOT NULL, 
	status VARCHAR(20) NOT NULL, 
	live INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	lease_owner VARCHAR(64), 
	lease_until FLOAT, 
	created_at FLOAT NOT NULL, 
	started_at FLOAT, 
	ended_at FLOAT, 
	exit_code INTEGER, 
	spec JSON NOT NULL, 
	"plan" JSON NOT NULL, 
	record JSON NOT NULL, 
	error JSON, 
	type VARCHAR(20) DEFAULT 'command' NOT NULL, 
	parent VARCHAR(255), 
	number INTEGER, 
	notes JSON, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);
INSERT INTO "jobs" VALUES(1,'plain','birds','Completed',0,13,NULL,NULL,1.79575082646498227116e+09,1.79575082671727275854e+09,1.79575082740199851987e+09,0,'{"name": "plain", "display_name": "A plain job", "description": "With what most jobs have: ''quotes'', \u00fcmlauts", "experiment_name": "birds", "tags": {"team": "vision"}, "inputs": {"words": {"type": "uri_file", "path": "azureml:words:1"}, "lr": 0.1}, "resources": {"instance_count": 2}, "distribution": {"type": "pytorch"}, "metrics": {"loss": "loss: ([0-9.]+)"}, "command": "python train.py ${{inputs.words}} --lr ${{inputs.lr}}", "code": "@ROOT@/code", "state": "plain"}','{"gang": {"key": "plain.1", "nodes": 2, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 2, "fixed_ports": []}, "task": {"job": "plain", "experiment": "birds", "command": "python train.py ${{inputs.words}} --lr ${{inputs.lr}}", "nodes": 2, "procs": 1, "gpus": 0, "distribution": "pytorch", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "f7d5d87290c89fd19c294f1e5824de9a4f1a52956b863305d6a2396ca8cbfc1e", "in_place": null, "inputs": [{"name": "words", "text": null, "source": "@HOME@/data/uploads/6cfe5928128b8b33919261e0168845160ba5320c1cd149e086f5f837d4ea1d6c/files/words.txt", "mode": "ro_mount", "uri": "", "datastore": "", "unpack": false, "sharded": false, "asset": "words:1", "digest": ""}, {"name": "lr", "text": "0.1", "source": null, "mode": "ro_mount", "uri": "", "datastore": "", "unpack": false, "sharded": false, "asset": "", "digest": ""}], "outputs": [], "record": "@HOME@/jobs/plain", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [{"name": "loss", "pattern": "loss: ([0-9.]+)", "rank": 0}], "continues": "", "previous": "", "state": "plain", "keep_work": 10000000000, "parent": "", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 2, "max_attempts": 1, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "7a71eea0097358b4753670bd1e9f073c955e5c05484ff3f21267a152326146f1", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [32645], "interface": "lo", "cpus": 1, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795750827.1158936, "rank": null, "code": null, "message": "", "hint": "", "finished": [0], "finished_at": 1795750827.0488176, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}, {"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.3", "host": "vm", "ports": [], "interface": "lo", "cpus": 1, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795750827.1027088, "rank": null, "code": null, "message": "", "hint": "", "finished": [1], "finished_at": 1795750827.0645134, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Completed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "DONE"}, "canceled": false, "given_up": false, "gang": "up", "why": "", "ref": "plain.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795750826.6132722, "started_at": 1795750826.7172728, "went_at": 1795750826.7172728, "up_at": 1795750826.6276658, "closing_at": 1795750827.3351703, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','command',NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'failed','code','Failed',0,10,NULL,NULL,1.79575082795287275312e+09,1.79575082806247758862e+09,1.79575082884092855455e+09,3,'{"command": "python train.py ''${{inputs.words}}'' fail", "code": "@ROOT@/code", "resources": {"instance_count": 1}, "inputs": {"words": {"type": "uri_file", "path": "@ROOT@/data/words.txt", "mode": "ro_mount"}}, "name": "failed", "metrics": {"loss": "loss: ([0-9.]+)"}, "experiment_name": "code"}','{"gang": {"key": "failed.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "failed", "experiment": "code", "command": "python train.py ''${{inputs.words}}'' fail", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "f7d5d87290c89fd19c294f1e5824de9a4f1a52956b863305d6a2396ca8cbfc1e", "in_place": null, "inputs": [{"name": "words", "text": null, "source": "@ROOT@/data/words.txt", "mode": "ro_mount", "uri": "", "datastore": "", "unpack": false, "sharded": false, "asset": "", "digest": ""}], "outputs": [], "record": "@HOME@/jobs/failed", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [{"name": "loss", "pattern": "loss: ([0-9.]+)", "rank": 0}], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 1, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "b6441ec47eba3ef96ac04d88948db0f7b57de53366d707f3239b28a9d5f1a5b7", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [17254], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "RANK_EXITED", "at": 1795750828.2766964, "rank": 0, "code": 3, "message": "rank 0 on node 0 exited with code 3: loss: 0.3333333333333333", "hint": "", "finished": [], "finished_at": 0.0, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Failed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "RANK_EXITED"}, "canceled": false, "given_up": false, "gang": "up", "why": "", "ref": "failed.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795750827.9917471, "started_at": 1795750828.0624776, "went_at": 1795750828.0624776, "up_at": 1795750828.0375972, "closing_at": 1795750828.3614168, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','{"reason": "RANK_EXITED", "blame": "user", "message": "rank 0 on node 0 exited with code 3: loss: 0.3333333333333333", "hint": "see its log: allranks job logs failed --rank 0", "node": 0, "rank": 0, "cause": "UNKNOWN", "explanation": "the cause is unknown", "evidence": null, "retryable": null, "exception": null}','command',NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'search','allranks-0.1.0','Completed',0,2,NULL,NULL,1.79575082944054365162e+09,1.79575082949410653109e+09,1.79575083042849969862e+09,0,'{"name": "search", "type": "sweep", "search_space": {"lr": {"type": "uniform", "min_value": 0, "max_value": 1}}, "limits": {"max_total_trials": 2, "max_concurrent_trials": 2}, "objective": {"goal": "minimize", "primary_metric": "loss"}, "sampling_algorithm": {"type": "random", "seed": 1}, "experiment_name": "allranks-0.1.0", "trial": {"command": "bash -c ''for i in 1 2; do echo loss: ${{search_space.lr}}$i; done''", "code": "@ROOT@", "resources": {"instance_count": 1}, "metrics": {"loss": "loss: ([0-9.]+)"}}}','{"gang": {"key": "search.1", "nodes": 0, "argv": [], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "search", "experiment": "allranks-0.1.0", "command": "bash -c ''for i in 1 2; do echo loss: ${{search_space.lr}}$i; done''", "nodes": 0, "procs": 0, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "df0a04009f276fa49697ca3c5e7cd48b5d676757278ec0f123f21b0e75a4ee86", "in_place": null, "inputs": [], "outputs": [], "record": "@HOME@/jobs/search", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [{"name": "loss", "pattern": "loss: ([0-9.]+)", "rank": 0}], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 3, "on": ["node_lost", "preempted"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "c65403340a2426f1c32ca611e158098ac0039881d210a83119ea89d9f3cd5f52", "compute": "local", "server_address": "", "notes": []}','{"nodes": [], "status": "Completed", "launch": 1, "attempt": 1, "then": null, "canceled": false, "given_up": false, "gang": "absent", "why": "", "ref": "", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": null, "started_at": 1795750829.4941065, "went_at": 1795750829.4941065, "up_at": null, "closing_at": null, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','sweep',NULL,NULL,'{"best": "search_1"}');
INSERT INTO "jobs" VALUES(4,'search_0','allranks-0.1.0','Completed',0,9,NULL,NULL,1.79575082951470470435e+09,1.79575082964392638206e+09,1.79575083030136799806e+09,0,'{"experiment_name": "allranks-0.1.0", "metrics": {"loss": "loss: ([0-9.]+)"}, "command": "bash -c ''for i in 1 2; do echo loss: ${{search_space.lr}}$i; done''", "code": "@ROOT@", "type": "command", "name": "search_0", "parent_job_name": "search", "search_space": {"lr": 0.9193906393606593}, "retry": {"max_attempts": 3, "on": ["node_lost", "preempted"]}}','{"gang": {"key": "search_0.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "search_0", "experiment": "allranks-0.1.0", "command": "bash -c ''for i in 1 2; do echo loss: ${{search_space.lr}}$i; done''", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "df0a04009f276fa49697ca3c5e7cd48b5d676757278ec0f123f21b0e75a4ee86", "in_place": null, "inputs": [], "outputs": [], "record": "@HOME@/jobs/search_0", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [{"name": "loss", "pattern": "loss: ([0-9.]+)", "rank": 0}], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "search", "parameters": {"lr": "0.9193906393606593"}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 3, "on": ["node_lost", "preempted"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "c65403340a2426f1c32ca611e158098ac0039881d210a83119ea89d9f3cd5f52", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [29900], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795750829.72257, "rank": null, "code": null, "message": "", "hint": "", "finished": [0], "finished_at": 1795750829.710884, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Completed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "DONE"}, "canceled": false, "given_up": false, "gang": "up", "why": "", "ref": "search_0.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795750829.5463972, "started_at": 1795750829.6439264, "went_at": 1795750829.6439264, "up_at": 1795750829.5827312, "closing_at": 1795750830.0529225, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','command','search',0,'{"parameters": {"lr": 0.9193906393606593}, "numbers": {"lr": 0.9193906393606593}, "value": 0.9193906393606593, "reports": 2}');
INSERT INTO "jobs" VALUES(5,'search_1','allranks-0.1.0','Completed',0,10,NULL,NULL,1.79575082956171417237e+09,1.79575082970183563229e+09,1.79575083040569210049e+09,0,'{"experiment_name": "allranks-0.1.0", "metrics": {"loss": "loss: ([0-9.]+)"}, "command": "bash -c ''for i in 1 2; do echo loss: ${{search_space.lr}}$i; done''", "code": "@ROOT@", "type": "command", "name": "search_1", "parent_job_name": "search", "search_space": {"lr": 0.2647820332812658}, "retry": {"max_attempts": 3, "on": ["node_lost", "preempted"]}}','{"gang": {"key": "search_1.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "search_1", "experiment": "allranks-0.1.0", "command": "bash -c ''for i in 1 2; do echo loss: ${{search_space.lr}}$i; done''", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "df0a04009f276fa49697ca3c5e7cd48b5d676757278ec0f123f21b0e75a4ee86", "in_place": null, "inputs": [], "outputs": [], "record": "@HOME@/jobs/search_1", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [{"name": "loss", "pattern": "loss: ([0-9.]+)", "rank": 0}], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "search", "parameters": {"lr": "0.2647820332812658"}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 3, "on": ["node_lost", "preempted"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "b83503a0cb678e459c622e87f6509dd91c1f2ec3cf60e078284c079015fa51a0", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [22124], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795750830.0298064, "rank": null, "code": null, "message": "", "hint": "", "finished": [0], "finished_at": 1795750829.9446971, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Completed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "DONE"}, "canceled": false, "given_up": false, "gang": "up", "why": "", "ref": "search_1.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795750829.5812595, "started_at": 1795750829.7018356, "went_at": 1795750829.7018356, "up_at": 1795750829.5892487, "closing_at": 1795750830.2458038, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','command','search',1,'{"parameters": {"lr": 0.2647820332812658}, "numbers": {"lr": 0.2647820332812658}, "value": 0.2647820332812658, "reports": 2}');
INSERT INTO "jobs" VALUES(6,'pipe','allranks-0.1.0','Completed',0,2,NULL,NULL,1.79575083180495357511e+09,1.79575083183875632291e+09,1.79575083214894461636e+09,0,'{"type": "pipeline", "name": "pipe", "jobs": {"make": {"command": "echo made > ${{outputs.made}}/file", "outputs": {"made": {"type": "uri_folder"}}}, "use": {"command": "cat ${{inputs.made}}/file", "inputs": {"made": "${{parent.jobs.make.outputs.made}}"}}}, "experiment_name": "allranks-0.1.0", "properties": {"allranks.packages": "1880b11112a9362ac8aa94337725d72241e9a8640c9fb2c574a9cb4f36d82f22"}}','{"gang": {"key": "pipe.1", "nodes": 0, "argv": [], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 0, "fixed_ports": []}, "task": {"job": "pipe", "experiment": "allranks-0.1.0", "command": "", "nodes": 0, "procs": 0, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": null, "in_place": null, "inputs": [], "outputs": [], "record": "@HOME@/jobs/pipe", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "", "cache_limit": null, "metrics": [], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 0, "max_attempts": 1, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "", "compute": "local", "server_address": "", "notes": []}','{"nodes": [], "status": "Completed", "launch": 1, "attempt": 1, "then": null, "canceled": false, "given_up": false, "gang": "absent", "why": "", "ref": "", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": null, "started_at": 1795750831.8387563, "went_at": 1795750831.8387563, "up_at": null, "closing_at": null, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','pipeline',NULL,NULL,'{"outputs": {}}');
INSERT INTO "jobs" VALUES(7,'pipe_make','allranks-0.1.0','Completed',0,6,NULL,NULL,1.79575083187933635716e+09,1.79575083198706269256e+09,1.79575083201559209823e+09,0,'{"command": "echo made > ${{outputs.made}}/file", "type": "command", "name": "pipe_make", "experiment_name": "allranks-0.1.0", "display_name": "make", "inputs": {}, "outputs": {"made": {"type": "uri_folder"}}, "parent_job_name": "pipe"}','{"gang": {"key": "pipe_make.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "pipe_make", "experiment": "allranks-0.1.0", "command": "echo made > ${{outputs.made}}/file", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": null, "in_place": null, "inputs": [], "outputs": [{"name": "made", "path": "@HOME@/jobs/pipe_make/named-outputs/made", "is_file": false, "uri": "", "datastore": "", "mode": "rw_mount"}], "record": "@HOME@/jobs/pipe_make", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "pipe", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 1, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "d840810f162e19e39d6bc834286b606f6357a3541ec00c4def8862451ee7ef02", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [27138], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795750832.00978, "rank": null, "code": null, "message": "", "hint": "", "finished": [0], "finished_at": 1795750832.0075893, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Completed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "DONE"}, "canceled": false, "given_up": false, "gang": "absent", "why": "", "ref": "pipe_make.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795750831.9034326, "started_at": 1795750831.9870627, "went_at": 1795750831.9870627, "up_at": 1795750831.9660094, "closing_at": 1795750832.0153759, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','command','pipe',0,'{"step": "make", "not_reused": "it has no earlier result", "closed": true}');
INSERT INTO "jobs" VALUES(8,'pipe_use','allranks-0.1.0','Completed',0,6,NULL,NULL,1.79575083203891372679e+09,1.79575083210706305499e+09,1.79575083213512921333e+09,0,'{"command": "cat ${{inputs.made}}/file", "type": "command", "name": "pipe_use", "experiment_name": "allranks-0.1.0", "display_name": "use", "inputs": {"made": {"type": "uri_folder", "path": "azureml://jobs/pipe_make/outputs/made/paths/"}}, "outputs": {}, "parent_job_name": "pipe"}','{"gang": {"key": "pipe_use.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "pipe_use", "experiment": "allranks-0.1.0", "command": "cat ${{inputs.made}}/file", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": null, "in_place": null, "inputs": [{"name": "made", "text": null, "source": "@HOME@/jobs/pipe_make/named-outputs/made", "mode": "ro_mount", "uri": "", "datastore": "", "unpack": false, "sharded": false, "asset": "", "digest": ""}], "outputs": [], "record": "@HOME@/jobs/pipe_use", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "pipe", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 1, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "91a9e0149983257ff7da6bf772f9545842115973a41fa80872f537f0d7f52fad", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [26900], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795750832.1298044, "rank": null, "code": null, "message": "", "hint": "", "finished": [0], "finished_at": 1795750832.1235168, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Completed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "DONE"}, "canceled": false, "given_up": false, "gang": "absent", "why": "", "ref": "pipe_use.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795750832.053485, "started_at": 1795750832.107063, "went_at": 1795750832.107063, "up_at": 1795750832.0925913, "closing_at": 1795750832.1349726, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','command','pipe',1,'{"step": "use", "not_reused": "it has no earlier result", "closed": true}');
INSERT INTO "jobs" VALUES(9,'hidden','allranks-0.1.0','Completed',0,5,NULL,NULL,1795750832.66329,1.79575083274234652526e+09,1.79575083279839587215e+09,0,'{"command": "true", "code": "@ROOT@", "resources": {"instance_count": 1}, "name": "hidden", "experiment_name": "allranks-0.1.0"}','{"gang": {"key": "hidden.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "hidden", "experiment": "allranks-0.1.0", "command": "true", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "df0a04009f276fa49697ca3c5e7cd48b5d676757278ec0f123f21b0e75a4ee86", "in_place": null, "inputs": [], "outputs": [], "record": "@HOME@/jobs/hidden", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 1, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "408cc0c15b3d4a449c0e263141dc6685065cbddf0bb5a2c133eea0b5a2928644", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [21384], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795750832.7817426, "rank": null, "code": null, "message": "", "hint": "", "finished": [0], "finished_at": 1795750832.7797596, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Completed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "DONE"}, "canceled": false, "given_up": false, "gang": "absent", "why": "", "ref": "hidden.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795750832.678778, "started_at": 1795750832.7423465, "went_at": 1795750832.7423465, "up_at": 1795750832.712907, "closing_at": 1795750832.798205, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','command',NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(10,'running','allranks-0.1.0','Running',1,5,NULL,NULL,1.79575083804802608489e+09,1.79575083812792348856e+09,NULL,NULL,'{"command": "bash -c ''echo begun; [ \"$ALLRANKS_ATTEMPT\" = 1 ] && exec sleep 600; echo attempt $ALLRANKS_ATTEMPT''", "code": "@ROOT@", "resources": {"instance_count": 1}, "retry": {"max_attempts": 2}, "name": "running", "experiment_name": "allranks-0.1.0"}','{"gang": {"key": "running.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {"max_ranks": 64}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "running", "experiment": "allranks-0.1.0", "command": "bash -c ''echo begun; [ \"$ALLRANKS_ATTEMPT\" = 1 ] && exec sleep 600; echo attempt $ALLRANKS_ATTEMPT''", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "df0a04009f276fa49697ca3c5e7cd48b5d676757278ec0f123f21b0e75a4ee86", "in_place": null, "inputs": [], "outputs": [], "record": "@HOME@/jobs/running", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 2, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "a99ab455ef5c83dc7b3d7eca2016660a5d719241d1e7746023a72eb919fa62f9", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "RUNNING", "attempt": 1, "seq": 3, "place": {"address": "127.0.0.2", "host": "vm", "ports": [16293], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": false, "reason": null, "at": 0.0, "rank": null, "code": null, "message": "", "hint": "", "finished": [], "finished_at": 0.0, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Running", "launch": 1, "attempt": 1, "then": null, "canceled": false, "given_up": false, "gang": "up", "why": "", "ref": "running.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795750838.0544379, "started_at": 1795750838.1279235, "went_at": 1795750838.1279235, "up_at": 1795750838.081482, "closing_at": null, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}',NULL,'command',NULL,NULL,NULL);
CREATE TABLE mlflow_runs (
	job_id INTEGER NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	experiment_id VARCHAR(64) NOT NULL, 
	positions JSON NOT NULL, 
	done INTEGER NOT NULL, 
	PRIMARY KEY (job_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE TABLE point_blocks (
	series_id INTEGER NOT NULL, 
	first INTEGER NOT NULL, 
	length INTEGER NOT NULL, 
	earliest FLOAT NOT NULL, 
	latest FLOAT NOT NULL, 
	least FLOAT, 
	greatest FLOAT, 
	data BLOB NOT NULL, 
	PRIMARY KEY (series_id, first)
);
INSERT INTO "point_blocks" VALUES(1,0,1,1795750827.08204,1795750827.08204,100.0,100.0,X'789C636080005587A3AFEC0EDD7284F0221D0033CD04C9');
INSERT INTO "point_blocks" VALUES(2,0,1,1795750827.08204,1795750827.08204,1702764544.0,1702764544.0,X'789C636080005587A3AFEC0EDD7204B13BE26F3A0200380B0631');
INSERT INTO "point_blocks" VALUES(3,0,1,1795750827.08204,1795750827.08204,25276059648.0,25276059648.0,X'789C636080005587A3AFEC0EDD7204321D3CBAC49D003749059B');
INSERT INTO "point_blocks" VALUES(4,0,1,1795750827.08204,1795750827.08204,96047.532,96047.532,X'789C636080005587A3AFEC0EDD729C9127D4FCA3E8BB030044FC086C');
INSERT INTO "point_blocks" VALUES(5,0,1,1795750827.08204,1795750827.08204,4818384.536,4818384.536,X'789C636080005587A3AFEC0EDD72FC74C957A92431C81100467907CB');
INSERT INTO "point_blocks" VALUES(6,0,1,1795750827.08204,1795750827.08204,0.0,0.0,X'789C636080005587A3AFEC0EDD728472190032DB0430');
INSERT INTO "point_blocks" VALUES(7,0,1,1795750827.08204,1795750827.08204,0.0,0.0,X'789C636080005587A3AFEC0EDD728472190032DB0430');
INSERT INTO "point_blocks" VALUES(8,0,1,1795750827.08204,1795750827.08204,25276059648.0,25276059648.0,X'789C636080005587A3AFEC0EDD7204321D3CBAC49D003749059B');
INSERT INTO "point_blocks" VALUES(9,0,3,1.79575082701310062408e+09,1.79575082701310062408e+09,3.33333333333333314829e-01,1.0,X'789C63606464C0069630305C636038C0C0F08A81C18E81E11003C32D060647904C281AFAF0E0AABDBD3D00F62B0AA2');
INSERT INTO "point_blocks" VALUES(10,0,1,1.79575082707739639275e+09,1.79575082707739639275e+09,100.0,100.0,X'789C63608000812F475ED91DBAE508E1453A00003CFB0567');
INSERT INTO "point_blocks" VALUES(11,0,1,1.79575082707739639275e+09,1.79575082707739639275e+09,1702764544.0,1702764544.0,X'789C63608000812F475ED91DBAE5086277C4DF740400413906CF');
INSERT INTO "point_blocks" VALUES(12,0,1,1.79575082707739639275e+09,1.79575082707739639275e+09,25276059648.0,25276059648.0,X'789C63608000812F475ED91DBAE508643A7874893B010040770639');
INSERT INTO "point_blocks" VALUES(13,0,1,1.79575082707739639275e+09,1.79575082707739639275e+09,87869.396,87869.396,X'789C63608000812F475ED91DBAE538598225EC5AF157070049EA0851');
INSERT INTO "point_blocks" VALUES(14,0,1,1.79575082707739639275e+09,1.79575082707739639275e+09,5140359.687,5140359.687,X'789C63608000812F475ED91DBAE578F3DCF7D70F67073B020059100A67');
INSERT INTO "point_blocks" VALUES(15,0,1,1.79575082707739639275e+09,1.79575082707739639275e+09,0.0,0.0,X'789C63608000812F475ED91DBAE508E53200003C0904CE');
INSERT INTO "point_blocks" VALUES(16,0,1,1.79575082707739639275e+09,1.79575082707739639275e+09,0.0,0.0,X'789C63608000812F475ED91DBAE508E53200003C0904CE');
INSERT INTO "point_blocks" VALUES(17,0,1,1.79575082707739639275e+09,1.79575082707739639275e+09,25276059648.0,25276059648.0,X'789C63608000812F475ED91DBAE508643A7874893B010040770639');
INSERT INTO "point_blocks" VALUES(18,0,3,1.79575082824510073656e+09,1.79575082824510073656e+09,3.33333333333333314829e-01,1.0,X'789C63606464C006763330AC6760E0676078CDC060C7C0708881E1160383234826140D7D7870D5DEDE1E00D6BD09E2');
INSERT INTO "point_blocks" VALUES(19,0,1,1.79575082835065388681e+09,1.79575082835065388681e+09,100.0,100.0,X'789C63608000D942B1D776876E394278910E002CA70444');
INSERT INTO "point_blocks" VALUES(20,0,1,1.79575082835065388681e+09,1.79575082835065388681e+09,1715937280.0,1715937280.0,X'789C63608000D942B1D776876E3982D82726DE740400327B061E');
INSERT INTO "point_blocks" VALUES(21,0,1,1.79575082835065388681e+09,1.79575082835065388681e+09,25276059648.0,25276059648.0,X'789C63608000D942B1D776876E3902990E1E5DE24E0030230516');
INSERT INTO "point_blocks" VALUES(22,0,1,1.79575082835065388681e+09,1.79575082835065388681e+09,54994.111,54994.111,X'789C63608000D942B1D776876E395ADFF7EF75BEF5CA01003DEF07E8');
INSERT INTO "point_blocks" VALUES(23,0,1,1.79575082835065388681e+09,1.79575082835065388681e+09,4014570.074,4014570.074,X'789C63608000D942B1D776876E39FEBB52C1F975819F230042FF0822');
INSERT INTO "point_blocks" VALUES(24,0,1,1.79575082835065388681e+09,1.79575082835065388681e+09,0.0,0.0,X'789C63608000D942B1D776876E3942B90C002BB503AB');
INSERT INTO "point_blocks" VALUES(25,0,1,1.79575082835065388681e+09,1.79575082835065388681e+09,0.0,0.0,X'789C63608000D942B1D776876E3942B90C002BB503AB');
INSERT INTO "point_blocks" VALUES(26,0,1,1.79575082835065388681e+09,1.79575082835065388681e+09,25276059648.0,25276059648.0,X'789C63608000D942B1D776876E3902990E1E5DE24E0030230516');
INSERT INTO "point_blocks" VALUES(27,0,2,1.79575082969310069079e+09,1.79575082969310069079e+09,9.19390639360659345236e-01,9.19390639360659345236e-01,X'789C63606440018719A21972185E33D8311C62B8C5E0C8307DFABA759C9CAF5F2F5D9A9DFDF6ADBD3D00BF8C0D7C');
INSERT INTO "point_blocks" VALUES(28,0,2,1.79575082994110083586e+09,1.79575082994110083586e+09,2.64782033281265816171e-01,2.64782033281265816171e-01,X'789C6360644001FF19AC186A185E33D8311C62B8C5E0C82023B37B77424278B881C1A74F172ED8DB0300B2640C3B');
INSERT INTO "point_blocks" VALUES(29,0,1,1.79575082996091842657e+09,1.79575082996091842657e+09,100.0,100.0,X'789C636080800DF5B5AFED0EDD7284F0221D003C4B054C');
INSERT INTO "point_blocks" VALUES(30,0,1,1.79575082996091842657e+09,1.79575082996091842657e+09,1736601600.0,1736601600.0,X'789C636080800DF5B5AFED0EDD7204B1E73CB8E90800425C0749');
INSERT INTO "point_blocks" VALUES(31,0,1,1.79575082996091842657e+09,1.79575082996091842657e+09,25276059648.0,25276059648.0,X'789C636080800DF5B5AFED0EDD7204321D3CBAC49D003FC7061E');
INSERT INTO "point_blocks" VALUES(32,0,1,1.79575082996091842657e+09,1.79575082996091842657e+09,0.0,0.0,X'789C636080800DF5B5AFED0EDD72847219003B5904B3');
INSERT INTO "point_blocks" VALUES(33,0,1,1.79575082996091842657e+09,1.79575082996091842657e+09,2989045.274,2989045.274,X'789C636080800DF5B5AFED0EDD729C9127B4F8D7593747004DD208BC');
INSERT INTO "point_blocks" VALUES(34,0,1,1.79575082996091842657e+09,1.79575082996091842657e+09,0.0,0.0,X'789C636080800DF5B5AFED0EDD72847219003B5904B3');
INSERT INTO "point_blocks" VALUES(35,0,1,1.79575082996091842657e+09,1.79575082996091842657e+09,0.0,0.0,X'789C636080800DF5B5AFED0EDD72847219003B5904B3');
INSERT INTO "point_blocks" VALUES(36,0,1,1.79575082996091842657e+09,1.79575082996091842657e+09,25276059648.0,25276059648.0,X'789C636080800DF5B5AFED0EDD7204321D3CBAC49D003FC7061E');
CREATE TABLE points (
	series_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	step BIGINT NOT NULL, 
	at FLOAT NOT NULL, 
	value FLOAT, 
	PRIMARY KEY (series_id, number)
)
 WITHOUT ROWID

;
INSERT INTO "points" VALUES(37,0,0,1.79575083927184343335e+09,100.0);
INSERT INTO "points" VALUES(37,1,0,1.79575084027335023879e+09,100.0);
INSERT INTO "points" VALUES(38,0,0,1.79575083927184343335e+09,1248165888.0);
INSERT INTO "points" VALUES(38,1,0,1.79575084027335023879e+09,1278181376.0);
INSERT INTO "points" VALUES(39,0,0,1.79575083927184343335e+09,25276059648.0);
INSERT INTO "points" VALUES(39,1,0,1.79575084027335023879e+09,25276059648.0);
INSERT INTO "points" VALUES(40,0,0,1.79575083927184343335e+09,3829.72);
INSERT INTO "points" VALUES(40,1,0,1.79575084027335023879e+09,35625.156);
INSERT INTO "points" VALUES(41,0,0,1.79575083927184343335e+09,4890553.018);
INSERT INTO "points" VALUES(41,1,0,1.79575084027335023879e+09,2766887.135);
INSERT INTO "points" VALUES(42,0,0,1.79575083927184343335e+09,0.0);
INSERT INTO "points" VALUES(42,1,0,1.79575084027335023879e+09,0.0);
INSERT INTO "points" VALUES(43,0,0,1.79575083927184343335e+09,0.0);
INSERT INTO "points" VALUES(43,1,0,1.79575084027335023879e+09,0.0);
INSERT INTO "points" VALUES(44,0,0,1.79575083927184343335e+09,25276059648.0);
INSERT INTO "points" VALUES(44,1,0,1.79575084027335023879e+09,25276059648.0);
INSERT INTO "points" VALUES(45,0,0,1.79575083927184343335e+09,1712128.0);
INSERT INTO "points" VALUES(45,1,0,1.79575084027335023879e+09,1712128.0);
INSERT INTO "points" VALUES(46,0,0,1.79575083927184343335e+09,0.0);
INSERT INTO "points" VALUES(46,1,0,1.79575084027335023879e+09,0.0);
INSERT INTO "points" VALUES(47,0,0,1.79575083927184343335e+09,0.0);
INSERT INTO "points" VALUES(47,1,0,1.79575084027335023879e+09,0.0);
INSERT INTO "points" VALUES(48,0,0,1.79575083927184343335e+09,1712128.0);
INSERT INTO "points" VALUES(48,1,0,1.79575084027335023879e+09,1712128.0);
INSERT INTO "points" VALUES(49,0,0,1.79575083927184343335e+09,0.0);
INSERT INTO "points" VALUES(49,1,0,1.79575084027335023879e+09,0.0);
INSERT INTO "points" VALUES(50,0,0,1.79575083927184343335e+09,3809.636);
INSERT INTO "points" VALUES(50,1,0,1.79575084027335023879e+09,0.0);
CREATE TABLE schedules (
	name VARCHAR(255) NOT NULL, 
	spec JSON NOT NULL, 
	submission JSON NOT NULL, 
	created_at FLOAT NOT NULL, 
	created_by VARCHAR(255) NOT NULL, 
	enabled INTEGER NOT NULL, 
	next_at FLOAT, 
	last JSON, 
	PRIMARY KEY (name)
);
INSERT INTO "schedules" VALUES('nightly','{"name": "nightly", "trigger": {"type": "cron", "expression": "0 3 * * *"}, "create_job": "plain.yml"}','{"spec": {"display_name": "A plain job", "description": "With what most jobs have: ''quotes'', \u00fcmlauts", "experiment_name": "birds", "tags": {"team": "vision"}, "inputs": {"words": {"type": "uri_file", "path": "azureml:words:1"}, "lr": 0.1}, "resources": {"instance_count": 2}, "distribution": {"type": "pytorch"}, "metrics": {"loss": "loss: ([0-9.]+)"}, "command": "python train.py ${{inputs.words}} --lr ${{inputs.lr}}", "code": "@ROOT@/code", "state": "plain"}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "tools": {}, "code": "f7d5d87290c89fd19c294f1e5824de9a4f1a52956b863305d6a2396ca8cbfc1e", "diff": ""}',1.79575083563053679467e+09,'owner',0,1795834800.0,'null');
CREATE TABLE series (
	id INTEGER NOT NULL, 
	job_id INTEGER NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	attempt INTEGER NOT NULL, 
	node INTEGER NOT NULL, 
	rank INTEGER, 
	gpu INTEGER, 
	length INTEGER NOT NULL, 
	step BIGINT, 
	at FLOAT, 
	value FLOAT, 
	packed INTEGER DEFAULT '0' NOT NULL, 
	leads INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "series" VALUES(1,1,'resource','node_cpu',1,1,NULL,NULL,1,0,1795750827.08204,100.0,1,0);
INSERT INTO "series" VALUES(2,1,'resource','node_memory',1,1,NULL,NULL,1,0,1795750827.08204,1702764544.0,1,0);
INSERT INTO "series" VALUES(3,1,'resource','node_memory_total',1,1,NULL,NULL,1,0,1795750827.08204,25276059648.0,1,0);
INSERT INTO "series" VALUES(4,1,'resource','node_disk_read',1,1,NULL,NULL,1,0,1795750827.08204,96047.532,1,0);
INSERT INTO "series" VALUES(5,1,'resource','node_disk_write',1,1,NULL,NULL,1,0,1795750827.08204,4818384.536,1,0);
INSERT INTO "series" VALUES(6,1,'resource','net_in',1,1,NULL,NULL,1,0,1795750827.08204,0.0,1,0);
INSERT INTO "series" VALUES(7,1,'resource','net_out',1,1,NULL,NULL,1,0,1795750827.08204,0.0,1,0);
INSERT INTO "series" VALUES(8,1,'resource','memory_total',1,1,NULL,NULL,1,0,1795750827.08204,25276059648.0,1,0);
INSERT INTO "series" VALUES(9,1,'metric','loss',1,0,0,NULL,3,2,1.79575082701310062408e+09,3.33333333333333314829e-01,3,1);
INSERT INTO "series" VALUES(10,1,'resource','node_cpu',1,0,NULL,NULL,1,0,1.79575082707739639275e+09,100.0,1,0);
INSERT INTO "series" VALUES(11,1,'resource','node_memory',1,0,NULL,NULL,1,0,1.79575082707739639275e+09,1702764544.0,1,0);
INSERT INTO "series" VALUES(12,1,'resource','node_memory_total',1,0,NULL,NULL,1,0,1.79575082707739639275e+09,25276059648.0,1,0);
INSERT INTO "series" VALUES(13,1,'resource','node_disk_read',1,0,NULL,NULL,1,0,1.79575082707739639275e+09,87869.396,1,0);
INSERT INTO "series" VALUES(14,1,'resource','node_disk_write',1,0,NULL,NULL,1,0,1.79575082707739639275e+09,5140359.687,1,0);
INSERT INTO "series" VALUES(15,1,'resource','net_in',1,0,NULL,NULL,1,0,1.79575082707739639275e+09,0.0,1,0);
INSERT INTO "series" VALUES(16,1,'resource','net_out',1,0,NULL,NULL,1,0,1.79575082707739639275e+09,0.0,1,0);
INSERT INTO "series" VALUES(17,1,'resource','memory_total',1,0,NULL,NULL,1,0,1.79575082707739639275e+09,25276059648.0,1,0);
INSERT INTO "series" VALUES(18,2,'metric','loss',1,0,0,NULL,3,2,1.79575082824510073656e+09,3.33333333333333314829e-01,3,1);
INSERT INTO "series" VALUES(19,2,'resource','node_cpu',1,0,NULL,NULL,1,0,1.79575082835065388681e+09,100.0,1,0);
INSERT INTO "series" VALUES(20,2,'resource','node_memory',1,0,NULL,NULL,1,0,1.79575082835065388681e+09,1715937280.0,1,0);
INSERT INTO "series" VALUES(21,2,'resource','node_memory_total',1,0,NULL,NULL,1,0,1.79575082835065388681e+09,25276059648.0,1,0);
INSERT INTO "series" VALUES(22,2,'resource','node_disk_read',1,0,NULL,NULL,1,0,1.79575082835065388681e+09,54994.111,1,0);
INSERT INTO "series" VALUES(23,2,'resource','node_disk_write',1,0,NULL,NULL,1,0,1.79575082835065388681e+09,4014570.074,1,0);
INSERT INTO "series" VALUES(24,2,'resource','net_in',1,0,NULL,NULL,1,0,1.79575082835065388681e+09,0.0,1,0);
INSERT INTO "series" VALUES(25,2,'resource','net_out',1,0,NULL,NULL,1,0,1.79575082835065388681e+09,0.0,1,0);
INSERT INTO "series" VALUES(26,2,'resource','memory_total',1,0,NULL,NULL,1,0,1.79575082835065388681e+09,25276059648.0,1,0);
INSERT INTO "series" VALUES(27,4,'metric','loss',1,0,0,NULL,2,1,1.79575082969310069079e+09,9.19390639360659345236e-01,2,1);
INSERT INTO "series" VALUES(28,5,'metric','loss',1,0,0,NULL,2,1,1.79575082994110083586e+09,2.64782033281265816171e-01,2,1);
INSERT INTO "series" VALUES(29,5,'resource','node_cpu',1,0,NULL,NULL,1,0,1.79575082996091842657e+09,100.0,1,0);
INSERT INTO "series" VALUES(30,5,'resource','node_memory',1,0,NULL,NULL,1,0,1.79575082996091842657e+09,1736601600.0,1,0);
INSERT INTO "series" VALUES(31,5,'resource','node_memory_total',1,0,NULL,NULL,1,0,1.79575082996091842657e+09,25276059648.0,1,0);
INSERT INTO "series" VALUES(32,5,'resource','node_disk_read',1,0,NULL,NULL,1,0,1.79575082996091842657e+09,0.0,1,0);
INSERT INTO "series" VALUES(33,5,'resource','node_disk_write',1,0,NULL,NULL,1,0,1.79575082996091842657e+09,2989045.274,1,0);
INSERT INTO "series" VALUES(34,5,'resource','net_in',1,0,NULL,NULL,1,0,1.79575082996091842657e+09,0.0,1,0);
INSERT INTO "series" VALUES(35,5,'resource','net_out',1,0,NULL,NULL,1,0,1.79575082996091842657e+09,0.0,1,0);
INSERT INTO "series" VALUES(36,5,'resource','memory_total',1,0,NULL,NULL,1,0,1.79575082996091842657e+09,25276059648.0,1,0);
INSERT INTO "series" VALUES(37,10,'resource','node_cpu',1,0,NULL,NULL,2,0,1.79575084027335023879e+09,100.0,0,0);
INSERT INTO "series" VALUES(38,10,'resource','node_memory',1,0,NULL,NULL,2,0,1.79575084027335023879e+09,1278181376.0,0,0);
INSERT INTO "series" VALUES(39,10,'resource','node_memory_total',1,0,NULL,NULL,2,0,1.79575084027335023879e+09,25276059648.0,0,0);
INSERT INTO "series" VALUES(40,10,'resource','node_disk_read',1,0,NULL,NULL,2,0,1.79575084027335023879e+09,35625.156,0,0);
INSERT INTO "series" VALUES(41,10,'resource','node_disk_write',1,0,NULL,NULL,2,0,1.79575084027335023879e+09,2766887.135,0,0);
INSERT INTO "series" VALUES(42,10,'resource','net_in',1,0,NULL,NULL,2,0,1.79575084027335023879e+09,0.0,0,0);
INSERT INTO "series" VALUES(43,10,'resource','net_out',1,0,NULL,NULL,2,0,1.79575084027335023879e+09,0.0,0,0);
INSERT INTO "series" VALUES(44,10,'resource','memory_total',1,0,NULL,NULL,2,0,1.79575084027335023879e+09,25276059648.0,0,0);
INSERT INTO "series" VALUES(45,10,'resource','memory',1,0,0,NULL,2,0,1.79575084027335023879e+09,1712128.0,0,0);
INSERT INTO "series" VALUES(46,10,'resource','cpu',1,0,0,NULL,2,0,1.79575084027335023879e+09,0.0,0,0);
INSERT INTO "series" VALUES(47,10,'resource','cpu',1,0,NULL,NULL,2,0,1.79575084027335023879e+09,0.0,0,0);
INSERT INTO "series" VALUES(48,10,'resource','memory',1,0,NULL,NULL,2,0,1.79575084027335023879e+09,1712128.0,0,0);
INSERT INTO "series" VALUES(49,10,'resource','disk_read',1,0,NULL,NULL,2,0,1.79575084027335023879e+09,0.0,0,0);
INSERT INTO "series" VALUES(50,10,'resource','disk_write',1,0,NULL,NULL,2,0,1.79575084027335023879e+09,0.0,0,0);
CREATE TABLE settings (
	"key" VARCHAR(63) NOT NULL, 
	value JSON NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "settings" VALUES('endpoint.keys','{"birds": {"keys": ["primary", "secondary"], "value": "gAAAAABrCPu0yT30rYn51gii8OUQQ153EoKP9Mk0AgSfiOVs-rr8MOfwE6pVO5YrxoUU7DgCzdwJtrovPocS4i9BUUScUU6n60KqlprhnqrkoFu65MoAxMgPS_y-0z3_GjNfvbwWRuTZ3Z4io_PA3p0BzGH7KBtuyC-t2OuTujaEtCd-8geElGfjciWvSdREksChhSmbukeBFlKRADLa1bYd7lxEX6UZQVE8aeyWGaUhbdgilySFnFg="}}');
INSERT INTO "settings" VALUES('endpoints','{"birds": {"name": "birds", "spec": {"name": "birds", "auth_mode": "key"}, "keys": ["1fec2744bb394186e57c419dc282b15b3d28a16d8f4f8739201966d88beab1e6", "d71e9b7c55515c3e3a9866fc15fac6c983ffa04a5af9db6ee571e7c1d0afd7b5"], "created_at": 1795750836.9510653, "created_by": "owner"}}');
INSERT INTO "settings" VALUES('serve.port',37857);
INSERT INTO "settings" VALUES('compute.map','{"gpu-cluster": "local"}');
INSERT INTO "settings" VALUES('data.map','{"s3://old/": "@ROOT@/data/"}');
INSERT INTO "settings" VALUES('secrets','{"birds": {"keys": ["access_key_id", "secret_access_key"], "value": "gAAAAABrCPu1x_F591ghQDpE2tF5HCX2odqQgRJQixs9SnTUEV6dPn6XJ3qs8ZuOed9BOzMO-mjq3aoOMDXukoE6T3Qo2dTCPboVnPUxLGH96TiOj5EKTGaJxarh4lbE8_lnpz71iLeN9rthlVNb9YpvhaHyrTCU_emTPLcOFMdkEaTHYmQuSnc="}}');
INSERT INTO "settings" VALUES('datastores','{"birds": {"name": "birds", "type": "s3", "bucket": "birds", "prefix": "v2"}}');
CREATE TABLE step_results (
	job_id INTEGER NOT NULL, 
	step VARCHAR(600) NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	parts JSON NOT NULL, 
	outputs JSON NOT NULL, 
	PRIMARY KEY (job_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "step_results" VALUES(7,'allranks-0.1.0/make','952d7d8e05e31a08aeedf4f4cff863cb5365e7677a6f3f73767dbe76e588e08a','{"the command": "echo made > ${{outputs.made}}/file", "the code": "", "the environment": "1880b11112a9362ac8aa94337725d72241e9a8640c9fb2c574a9cb4f36d82f22 [(''HOME'', ''@ROOT@''), (''LOGNAME'', ''ann''), (''PATH'', ''@ROOT@/venv/bin:/usr/bin:/bin''), (''USER'', ''ann''), (''VIRTUAL_ENV'', ''@ROOT@/venv'')]", "the variables": "{}", "the parameters": "{}", "the metrics": "[]", "the settings": "{\"chiefs\":0,\"current\":null,\"distribution\":\"none\",\"evaluators\":0,\"fresh_work\":false,\"gpus\":0,\"inherits\":false,\"inside\":\"\",\"may_send\":false,\"nodes\":1,\"options\":{},\"parameter_servers\":0,\"procs\":1,\"sends_files\":false,\"services\":[],\"state\":\"\"}", "the outputs": "[[\"made\",false,\"\",\"rw_mount\"]]"}','{"made": "content 319f1e6a959cb3bc3e44344577ee98320563973bff83c23b6a8fb8575731b0a5"}');
INSERT INTO "step_results" VALUES(8,'allranks-0.1.0/use','797f542b17f86fd59ba211ec1116a305449fe46f0c0d750de309bb87e8a20e14','{"the command": "cat ${{inputs.made}}/file", "the code": "", "the environment": "1880b11112a9362ac8aa94337725d72241e9a8640c9fb2c574a9cb4f36d82f22 [(''HOME'', ''@ROOT@''), (''LOGNAME'', ''ann''), (''PATH'', ''@ROOT@/venv/bin:/usr/bin:/bin''), (''USER'', ''ann''), (''VIRTUAL_ENV'', ''@ROOT@/venv'')]", "the variables": "{}", "the parameters": "{}", "the metrics": "[]", "the settings": "{\"chiefs\":0,\"current\":null,\"distribution\":\"none\",\"evaluators\":0,\"fresh_work\":false,\"gpus\":0,\"inherits\":false,\"inside\":\"\",\"may_send\":false,\"nodes\":1,\"options\":{},\"parameter_servers\":0,\"procs\":1,\"sends_files\":false,\"services\":[],\"state\":\"\"}", "the outputs": "[]", "the input made": "[null,\"content 319f1e6a959cb3bc3e44344577ee98320563973bff83c23b6a8fb8575731b0a5\",\"ro_mount\",false,false]"}','{}');
CREATE INDEX jobs_live ON jobs (live);
CREATE INDEX jobs_list ON jobs (parent, id, experiment, status, name, created_at, started_at, ended_at);
CREATE UNIQUE INDEX jobs_parent ON jobs (parent, number);
CREATE UNIQUE INDEX assets_one ON assets (kind, name, version);
CREATE INDEX events_job ON events (job_id, id);
CREATE INDEX step_results_step ON step_results (step, job_id);
CREATE INDEX step_results_fingerprint ON step_results (fingerprint);
CREATE INDEX series_job ON series (job_id, kind, attempt, node);
CREATE INDEX series_of_metric ON series (name, job_id, value) WHERE leads = 1;
CREATE INDEX series_by_value ON series (name, value, job_id) WHERE leads = 1;
CREATE INDEX series_unpacked ON series (job_id) WHERE packed < length;
COMMIT;
